"""Numbers that make no sense are refused by name, whatever verb they are given to."""

import pytest

from robowm.apps.cli import VERBS
from robowm.apps.harness import compose_verb
from robowm.apps.numbers import check_numbers
from robowm.errors import UserError


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"steps": -1}, "^steps=-1; it must be a whole number of at least 1$"),
        ({"steps": "abc"}, "steps=abc; it must be a whole number"),
        ({"batch_size": 2.5}, "batch_size=2.5; it must be a whole number"),
        ({"save_every": True}, "save_every=True; it must be a whole number"),
        ({"seed": -1}, "seed=-1; it must be a whole number of at least 0"),
        ({"policy": {"encoder_width": 0}}, "^policy.encoder_width=0; it must"),
        ({"loss": {"supervised": {"pure_noise": 3}}}, "^loss.supervised.pure_noise=3; it must lie between 0 and 1$"),
        ({"loss": {"context_noise": -0.1}}, "^loss.context_noise=-0.1; it must be 0 or more$"),
    ],
)
def test_what_makes_no_sense_is_named(node, words):
    with pytest.raises(UserError, match=words):
        check_numbers(node)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("size", ["debug", "base"])
def test_every_default_passes(verb, size):
    config = compose_verb(verb, [f"size={size}", *(["env=tabletop/push"] if verb == "imagine" else [])])
    check_numbers({key: value for key, value in config.items() if key != "size"})


def test_null_and_sensible_numbers_pass():
    check_numbers({"episodes": None, "steps": 1, "seed": 0, "stop_after_success": None, "world_model": {"chunk": 4}, "n": 2})
