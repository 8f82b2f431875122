from __future__ import annotations

import sys

import numpy as np
import pytest

from robowm.apps.cli import main
from robowm.errors import UserError
from robowm.protocols import Env, Policy, Rewindable
from robowm.rollout import run_episodes
from robowm.types import Obs
from sim.metaworld import MetaworldEnv, MetaworldExpert, MetaworldOpenLoop
from sim.metaworld.person import MetaworldPerson

TASKS = ("drawer_open", "button_press_topdown", "push", "pick_place", "door_open", "drawer_close", "hammer", "peg_insert_side")


@pytest.fixture
def metaworld():
    return pytest.importorskip("metaworld")


def all_on(n):
    return np.ones(n, bool)


def wander(seed, n, horizon):
    return np.random.default_rng(seed).uniform(-1, 1, (n, horizon, 4)).astype(np.float32)


def same(a, b):
    return np.array_equal(a.environment_state, b.environment_state) and all(np.array_equal(a.frames[c], b.frames[c]) for c in a.frames)


def test_it_fits_the_protocols_and_its_own_specification(metaworld, gl):
    env = MetaworldEnv("push", n=3, image_size=40)
    assert isinstance(env, Env) and isinstance(env, Rewindable)
    spec = env.spec()
    env.reset([1, 2])
    steps = env.step(wander(0, 2, 3), all_on(2))
    assert {name: frames.shape for name, frames in steps.obs.frames.items()} == {c: (2, 3, *hw, 3) for c, hw in spec["cameras"].items()}
    assert all(frames.dtype == np.uint8 for frames in steps.obs.frames.values())
    assert steps.obs.state.shape == (2, 3, len(spec["state_names"])) and steps.obs.state.dtype == np.float32
    assert steps.obs.environment_state.shape == (2, 3, len(spec["environment_state_names"]))
    assert len(spec["action_names"]) == 4 and spec["fps"] == env.fps == 20 and spec["action_kind"] == "delta"
    assert steps.valid.all() and steps.obs.task == ("Push the puck to a goal",) * 2


@pytest.mark.parametrize("task", ["push", "drawer-open", "bin-picking"])
def test_it_plays_what_meta_world_itself_plays_from_the_same_seed(metaworld, task):
    env, expert = MetaworldEnv(task, n=2, cameras=(), repeat=1), MetaworldExpert(task)
    theirs = metaworld.env_dict.ENV_CLS_MAP[f"{task}-v3"]()
    theirs._partially_observable, theirs._freeze_rand_vec, theirs.seeded_rand_vec, theirs._set_task_called = False, False, True, True
    del theirs.sawyer_observation_space
    theirs.seed(6)
    theirs.reset()
    env.reset([3, 4])  # earlier episodes leave no trace
    env.step(wander(0, 2, 8), all_on(2))
    obs = env.reset([5, 6])
    for k in range(40):
        actions, _ = expert.act(obs, expert.start(2), [])
        steps = env.step(actions, all_on(2))
        obs, (expected, _, _, _, info) = steps.obs, theirs.step(actions[1, 0])
        first = 0 if k else 18  # of the first step, what Meta-World remembers from before it placed the object is left out
        assert np.array_equal(obs.environment_state[1, 0, :18], expected[:18].astype(np.float32))
        assert np.array_equal(obs.environment_state[1, 0, 18 + first : 39], expected[18 + first :].astype(np.float32))
        assert steps.success[1, 0] == info["success"]


@pytest.mark.parametrize("task", ["pick_place", "bin_picking"])
def test_rewinding_and_replaying_gives_the_same_bits_and_pixels(metaworld, gl, task):
    env, expert = MetaworldEnv(task, n=2), MetaworldExpert(task, noise=0.1)
    obs, memory, rngs = env.reset([0, 1]), expert.start(2), [np.random.default_rng(i) for i in range(2)]
    for _ in range(9):  # into contact
        actions, memory = expert.act(obs, memory, rngs)
        obs = env.step(actions, all_on(2)).obs
    saved, good, replayed = env.get_state(), env.goal_holds(), wander(1, 2, 5)
    first, end = env.step(replayed, all_on(2)), env.get_state()
    back = env.set_state(saved)
    assert same(back, obs) and np.array_equal(env.goal_holds(), good)
    again = env.step(replayed, all_on(2))
    assert same(again.obs, first.obs) and np.array_equal(env.get_state(), end, equal_nan=True)
    other = MetaworldEnv(task, n=1)  # a state means the same in another environment and another place
    other.set_state(saved[1:])
    assert np.array_equal(other.step(replayed[1:], all_on(1)).obs.frames["wrist"][0], first.obs.frames["wrist"][1])


def test_an_episode_depends_on_its_seed_alone_and_workers_change_nothing(metaworld, gl):
    def episodes(seeds, **settings):
        env = MetaworldEnv("push", **settings)
        found = [r.episode for r in run_episodes(env, MetaworldExpert("push", noise=0.1), seeds, max_steps=8, kind="rollout")]
        env.close()
        return found

    wide, narrow, spread = episodes([1, 2, 3], n=3), episodes([3, 2], n=1), episodes([1, 2, 3], n=3, workers=2)
    for a, b in [*zip(wide[:0:-1], narrow, strict=True), *zip(wide, spread, strict=True)]:
        assert np.array_equal(a.action, b.action) and same(a, b) and a.task == b.task
    assert not np.array_equal(wide[0].environment_state[0], wide[1].environment_state[0])


def test_inactive_episodes_stand_still_and_the_last_rows_alone_can_be_drawn(metaworld, gl):
    env, last = MetaworldEnv("push", n=2), MetaworldEnv("push", n=2, render_rows=2)
    before, actions = env.reset([0, 1]), wander(2, 2, 3)
    last.reset([0, 1])
    steps = env.step(actions, np.array([True, False]))
    drawn = last.step(actions, np.array([True, False])).obs
    assert steps.valid.tolist() == [[True] * 3, [False] * 3]
    assert (steps.obs.frames["wrist"][1] == before.frames["wrist"][1]).all() and (steps.obs.state[1] == before.state[1]).all()
    assert not np.array_equal(steps.obs.frames["wrist"][0, -1], before.frames["wrist"][0, 0])
    assert all(np.array_equal(drawn.frames[c], steps.obs.frames[c][:, -2:]) for c in drawn.frames)


def test_pictures_are_upright_show_the_object_and_two_tasks_do_not_disturb_each_other(metaworld, gl):
    drawer, push = MetaworldEnv("drawer_open", n=2, image_size=64), MetaworldEnv("push", n=1, image_size=32)
    a, b = drawer.reset([0, 1]), push.reset([0])
    again = drawer.reset([0, 1])
    assert same(a, again) and same(push.reset([0]), b)
    picture = a.frames["external"][0, 0].astype(int)
    green = (picture[..., 1] > picture[..., 0] + 15) & (picture[..., 1] > picture[..., 2] + 15)  # the drawer, on the far right of the table
    rows, columns = np.nonzero(green)
    assert len(rows) > 40 and columns.mean() > 32
    arm = (picture[..., 0] > picture[..., 1] + 50) & (picture[..., 0] > picture[..., 2] + 50)
    assert arm[:, :32].sum() > 3 * arm[:, 32:].sum() > 0  # the robot stands on the left ...
    assert np.nonzero(arm)[0].min() < rows.min()  # ... and reaches over the drawer
    drawer.close()
    assert same(push.reset([0]), b)


@pytest.mark.parametrize("task", TASKS)
def test_the_scripted_expert_succeeds_and_standing_still_does_not(metaworld, task):
    env = MetaworldEnv(task, n=4, cameras=())
    rollouts = list(run_episodes(env, MetaworldExpert(task), range(4), max_steps=60, kind="demo", stop_after_success=0))
    assert all(r.episode.success for r in rollouts)
    assert all(np.abs(r.episode.action).max() <= 1 for r in rollouts)
    env.reset([0, 1])
    assert not env.goal_holds().any() and not env.step(np.zeros((2, 10, 4)), all_on(2)).success.any()


def test_open_loop_actions_ignore_the_object_but_touch_it_sometimes(metaworld):
    rollouts = list(run_episodes(MetaworldEnv("push", n=12, cameras=()), MetaworldOpenLoop(4), range(12), max_steps=50, kind="rollout"))
    moved = [np.abs(np.ptp(r.episode.environment_state[:, 4:7], axis=0)).max() > 0.01 for r in rollouts]
    assert 0.1 < np.mean(moved) < 0.9
    policy, seen = MetaworldOpenLoop(4), rollouts[0].episode
    hidden = Obs({}, seen.state[None, :1], None, ("",))
    action, _ = policy.act(hidden, policy.start(1), [np.random.default_rng([0, 0])])
    assert np.array_equal(action[0, 0], seen.action[0]) and set(np.unique(seen.action[:, 3])) <= {-1, 1}


def test_policies_fit_the_protocol_and_noise_comes_from_each_episodes_generator(metaworld):
    obs = MetaworldEnv("push", n=2, cameras=()).reset([0, 1])
    for policy in (MetaworldExpert("push", noise=0.2), MetaworldOpenLoop(4)):
        assert isinstance(policy, Policy)
        both, _ = policy.act(obs, policy.start(2), [np.random.default_rng(i) for i in (0, 1)])
        part = Obs({}, obs.state[1:], obs.environment_state[1:], ("",))
        alone, _ = policy.act(part, policy.start(1), [np.random.default_rng(1)])
        assert both.shape == (2, 1, 4) and both.dtype == np.float32 and np.array_equal(both[1], alone[0])
    with pytest.raises(UserError, match="needs simulator truth"):
        MetaworldExpert("push").act(Obs({}, obs.state, None, ("", "")), MetaworldExpert("push").start(2), [])


@pytest.mark.parametrize("task", ["door_open", "door_close"])
def test_a_script_that_writes_into_what_it_sees_does_not_change_the_record(metaworld, task):
    obs = MetaworldEnv(task, n=1, cameras=()).reset([0])
    before, expert = obs.environment_state.copy(), MetaworldExpert(task)
    expert.act(obs, expert.start(1), [])
    assert np.array_equal(obs.environment_state, before)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"cameras": ("wirst",)}, "wrist"),
        ({"task": "drawer_opn"}, "drawer-open"),
        ({"image_size": 16}, "32 to 256"),
        ({"n": 0}, "n=0"),
        ({"repeat": 0}, "repeat=0"),
    ],
)
def test_bad_settings_name_what_is_wrong(settings, named):
    with pytest.raises(UserError, match=named):
        MetaworldEnv(**{"cameras": (), **settings})


def test_bad_actions_states_and_seeds_are_refused(metaworld):
    env = MetaworldEnv("push", n=1, cameras=())
    env.reset([0])
    with pytest.raises(UserError, match=r"expected \[1, H >= 1, 4\]"):
        env.step(np.zeros((1, 1, 5)), all_on(1))
    with pytest.raises(UserError, match="states have shape"):
        env.set_state(env.get_state()[:, :-1])
    with pytest.raises(UserError, match="2 seeds"):
        env.reset([0, 1])


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "metaworld"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "metaworld", None)
    for build in (lambda: MetaworldEnv(cameras=(), workers=2), lambda: MetaworldExpert("push")):
        with pytest.raises(UserError, match=r"pip install -e '.\[metaworld\]'") as caught:
            build()
        assert "\n" not in str(caught.value)


def test_collect_records_demonstrations_and_refuses_the_tabletop_expert(metaworld, gl, tmp_path, capfd):
    words = ["env=metaworld/drawer_open", "size=debug", "until_successes=2"]
    assert main(["collect", *words, "actor=metaworld_expert", f"output_dir={tmp_path / 'a'}"]) == 0
    assert main(["collect", *words, f"output_dir={tmp_path / 'b'}"]) == 2
    assert "no scripted expert for task 'metaworld'" in capfd.readouterr().err


def test_a_person_sees_the_way_shrink_and_brings_the_hand_back(metaworld):
    env, person = MetaworldEnv("push", n=1, cameras=()), MetaworldPerson(MetaworldExpert("push"), repeat=4)
    (rollout,) = run_episodes(env, person.policy, [3], max_steps=60, kind="rollout", stop_after_success=0)
    state, truth = rollout.episode.state, rollout.episode.environment_state
    way = person.way(Obs({}, state[:, None], truth[:, None], ("",) * len(state)))
    assert rollout.episode.success == 1 and way[-1] < 0.12 < way[0]
    back = person.back(Obs({}, state[-1:, None], truth[-1:, None], ("",)), state[:1])
    assert back.shape == (1, 4) and ((state[0, :3] - state[-1, :3]) * back[0, :3] >= 0).all() and back[0, 3] == -1  # open again
