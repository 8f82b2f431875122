import itertools

import pytest

from robowm.errors import UserError
from robowm.seeds import SEED_RANGES, check_seeds, purpose_of


def test_ranges_do_not_overlap():
    for one, other in itertools.combinations(SEED_RANGES.values(), 2):
        assert set(one).isdisjoint(other)


def test_the_published_ranges():
    assert {name: (r.start, r.stop - 1) for name, r in SEED_RANGES.items()} == {
        "demonstrations": (0, 9_999),
        "rollouts": (10_000, 49_999),
        "tuning": (50_000, 59_999),
        "validation": (60_000, 69_999),
        "evaluation": (100_000, 109_999),
    }


def test_seeds_inside_pass_and_outside_are_named():
    check_seeds("evaluation", range(100_000, 110_000))
    with pytest.raises(UserError, match="2 outside, first 110000"):
        check_seeds("evaluation", range(109_999, 110_002))
    with pytest.raises(UserError, match="1 outside, first -1"):
        check_seeds("demonstrations", [0, -1])


def test_repeated_seeds_and_unknown_purposes_are_refused():
    with pytest.raises(UserError, match="repeat"):
        check_seeds("tuning", [50_000, 50_000])
    with pytest.raises(UserError, match="did you mean 'rollouts'"):
        check_seeds("rollout", [10_000])


def test_a_seed_tells_its_purpose():
    assert purpose_of(9_999) == "demonstrations" and purpose_of(100_000) == "evaluation" and purpose_of(70_000) is None
