import pytest

from robowm.errors import UserError
from robowm.flywheel.stages import Stage, expand, makespan, order, to_override
from tests.flywheel.fake_verbs import OFFSETS, STAGES

PER_TASK = {"demonstrations": {"push": 40, "insert": 30}}


def stages_of(stages, tasks=("push",), train_seeds=(0,), common=None):
    return {
        s.name: s for s in expand(stages, tasks=tasks, train_seeds=train_seeds, offsets=OFFSETS, per_task=PER_TASK, common=common or {})
    }


def test_every_unit_gets_its_own_stages_seeds_and_inputs():
    found = stages_of(STAGES, ("push", "insert"), (0, 2))
    assert len(found) == 16
    assert found["insert-2/demos"].words() == ["value=201"]
    assert found["insert-2/sum"].needs == ("insert-2/base", "insert-2/side")
    assert found["push-0/sum"].words({"push-0/base": "out/push-0/base", "push-0/side": "b c"}) == ["a=out/push-0/base", "b='b c'"]


def test_a_folder_that_is_not_known_yet_stays_a_placeholder():
    assert stages_of(STAGES)["push-0/base"].words() == ["a='{push-0/demos}'", "value=10"]


def test_facts_of_the_unit_keep_their_type_and_reach_into_lists():
    nodes = {"x": {"verb": "v", "overrides": {"env": "tabletop/{task}", "seed": "{train_seed}", "stores": [{"path": "{y}", "share": 0.5}]}}}
    found = stages_of({**nodes, "y": {"verb": "v"}}, train_seeds=(1,), common={"seed2": "{train_seed}"})
    assert found["push-1/x"].words({"push-1/y": "o/y"}) == ["seed2=1", "env=tabletop/push", "seed=1", "stores=[{path:o/y,share:0.5}]"]
    assert found["push-1/x"].needs == ("push-1/y",)


def test_what_differs_between_tasks_comes_from_per_task():
    nodes = {"x": {"verb": "v", "overrides": {"until_successes": "{demonstrations}"}}}
    found = stages_of(nodes, ("push", "insert"))
    assert [found[f"{task}-0/x"].words() for task in ("push", "insert")] == [["until_successes=40"], ["until_successes=30"]]
    with pytest.raises(UserError, match=r"per_task\.demonstrations says nothing of task 'lift'; it has push, insert"):
        stages_of(nodes, ("lift",))


def test_a_stage_may_exist_for_some_training_seeds_only():
    nodes = {"base": {"verb": "v"}, "control": {"verb": "v", "train_seeds": [0], "needs": ["base"]}}
    assert list(stages_of(nodes, train_seeds=(0, 1))) == ["push-0/base", "push-0/control", "push-1/base"]
    assert list(stages_of({**nodes, "control": {"verb": "v", "train_seeds": []}}, train_seeds=(0, 1))) == ["push-0/base", "push-1/base"]
    with pytest.raises(UserError, match="needs 'control', which is no stage"):
        stages_of({**nodes, "after": {"verb": "v", "needs": ["control"]}}, train_seeds=(1,))


def test_an_override_can_be_taken_out_again_with_what_it_needs():
    nodes = {"y": {"verb": "v"}, "x": {"verb": "v", "overrides": {"a": "{y}", "b": 1, "~a": None}}}
    found = stages_of(nodes)["push-0/x"]
    assert (found.words(), found.needs) == (["b=1"], ())


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        ({"a": {"verb": "v", "overides": {}}}, "stage a: unknown key 'overides'; did you mean 'overrides'?"),
        ({"a": {}}, "stage a names no verb"),
        ({"base": {"verb": "v"}, "a": {"verb": "v", "overrides": {"x": "{bas}"}}}, "stage a: {bas} is no stage.*did you mean 'base'?"),
        ({"base": {"verb": "v"}, "a": {"verb": "v", "needs": ["bas"]}}, "stage a: needs 'bas', which is no stage; did you mean 'base'?"),
        ({"a": {"verb": "v", "needs": ["b"]}, "b": {"verb": "v", "needs": ["a"]}}, "circle: push-0/a -> push-0/b -> push-0/a"),
    ],
)
def test_a_wrong_stage_list_is_named(nodes, line):
    with pytest.raises(UserError, match=line):
        stages_of(nodes)


@pytest.mark.parametrize(
    "value",
    [
        1,
        0.5,
        1e-4,
        True,
        None,
        "plain",
        "a/b.c-d",
        "null",
        "True",
        "12",
        "1e3",
        "it's",
        "a b,c",
        "back\\slash",
        "end\\",
        "both\\'",
        "",
        "{x/y}",
    ],
)
def test_values_survive_hydras_grammar(value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_override(f"k={to_override([value, {'a': value}])}").value()
    first, second = parsed[0], next(iter(parsed[1].values()))
    unquoted = [item.text if hasattr(item, "text") else item for item in (first, second)]
    assert unquoted == [value, value]
    assert [type(item) for item in unquoted] == [type(value)] * 2


def stage(name, needs=(), minutes=1.0):
    return Stage(name, "v", {}, tuple(needs), minutes)


def test_the_longest_path_goes_first():
    chain = [stage("a", minutes=1), stage("b", minutes=2), stage("c", ["a"], 5)]
    assert order(chain) == {"a": 6, "b": 2, "c": 5}


def test_time_left_follows_the_schedule():
    chain = [stage("a", minutes=1), stage("b", minutes=2), stage("c", ["a"], 5)]
    seconds = {"a": 60, "b": 120, "c": 300}
    assert makespan(chain, seconds, [], workers=2) == 360
    assert makespan(chain, seconds, [], workers=1) == 480
    assert makespan(chain, {**seconds, "a": 10}, ["a"], workers=2) == 310
    assert makespan(chain[2:], seconds, [], workers=2) == 300
