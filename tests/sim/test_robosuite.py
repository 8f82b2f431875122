from __future__ import annotations

import sys

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from robowm.apps.cli import main
from robowm.data.robomimic import export_robomimic
from robowm.data.spec import StoreSpec
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.protocols import Env, Policy, Rewindable
from robowm.rollout import run_episodes
from robowm.types import Obs
from sim.experts.waypoints import Progress, follow
from sim.robosuite import RobosuiteEnv, RobosuiteExpert, RobosuiteOpenLoop, transport
from sim.robosuite.hand import action_to, pose_of, tilted_pose_of
from sim.robosuite.person import RobosuitePerson
from sim.robosuite.rotation import from_quaternion, from_six, to_six
from sim.robosuite.scripts import SCRIPTS
from sim.robosuite.tasks import TASKS


@pytest.fixture
def robosuite():
    return pytest.importorskip("robosuite", reason="robosuite is not installed: pip install -e '.[robosuite]'")


def all_on(n):
    return np.ones(n, bool)


def same(a, b):
    pairs = [(a.state, b.state), (a.environment_state, b.environment_state), *((a.frames[c], b.frames[c]) for c in a.frames)]
    return all(np.array_equal(x, y) for x, y in pairs)


def wander(seed, obs, steps, action_kind="absolute"):
    """Return actions f32 [N, steps, A]: random deltas, or poses around the first one of each arm; the gripper opens and closes."""
    rng, n, arms = np.random.default_rng(seed), len(obs), obs.state.shape[-1] // 9
    if action_kind == "delta":
        return rng.uniform(-1, 1, (n, steps, 7 * arms)).astype(np.float32)
    hands = [np.concatenate([s[..., :3], to_six(from_quaternion(s[..., 3:7])), s[..., :1]], -1) for s in np.split(obs.state, arms, -1)]
    around = np.concatenate([np.repeat(hand, steps, 1) + rng.normal(0, 0.05, (n, steps, 10)) for hand in hands], -1)
    around[..., 9::10] = rng.choice([-1, 1], (n, steps, arms))
    return around.astype(np.float32)


@pytest.mark.parametrize(
    ("task", "action_kind"), [("lift", "absolute"), ("can", "delta"), ("transport", "absolute"), ("tool_hang", "delta")]
)
def test_it_fits_the_protocols_and_its_own_specification(robosuite, gl, task, action_kind):
    cameras = tuple(TASKS[task].cameras)
    env = RobosuiteEnv(task, n=2, image_size=40, cameras=cameras, action_kind=action_kind)
    assert isinstance(env, Env) and isinstance(env, Rewindable)
    spec = StoreSpec(**env.spec())
    steps = env.step(wander(0, env.reset([1, 2]), 2, action_kind), all_on(2))
    assert {name: frames.shape for name, frames in steps.obs.frames.items()} == {c: (2, 2, *hw, 3) for c, hw in spec.cameras.items()}
    assert steps.obs.state.shape == (2, 2, len(spec.state_names)) and steps.obs.state.dtype == np.float32
    assert steps.obs.environment_state.shape == (2, 2, len(spec.environment_state_names))
    assert spec.fps == env.fps == 20 and spec.action_kind == action_kind and steps.valid.all()
    with pytest.raises(UserError, match=rf"expected \[2, H >= 1, {len(spec.action_names)}\]"):
        env.step(np.zeros((2, 1, 5)), all_on(2))


@pytest.mark.parametrize(
    ("task", "action_kind"), [("lift", "absolute"), ("square", "delta"), ("transport", "absolute"), ("can", "absolute")]
)
def test_it_plays_what_robosuite_itself_plays_from_the_same_seed(robosuite, task, action_kind):
    from sim.robosuite.simulator import Simulator, _make

    ours = Simulator(task, action_kind)
    np.random.seed(0)
    theirs = _make(task, action_kind)
    np.random.seed(6)
    first = theirs.reset()
    for robot in theirs.robots:  # robosuite's first 2 ms use a mass matrix from before it placed the fingers; later ones do not
        for controller in robot.part_controllers.values():
            controller.new_update = True
    ours.reset(3)  # an earlier episode leaves no trace
    ours.step(wander(0, _as_obs(ours), 1, action_kind)[0, 0])
    ours.reset(6)
    keys = [f"robot{arm}_{key}" for arm in range(TASKS[task].arms) for key in ("eef_pos", "eef_quat", "gripper_qpos")]
    assert np.allclose(ours.observe()[0], np.concatenate([first[key] for key in keys]), atol=1e-12)
    for action in wander(1, _as_obs(ours), 10, action_kind)[0]:
        ours.step(action)
        theirs.step(ours._command(action.astype(float)))
        assert np.array_equal(ours.data.qpos, theirs.sim.data.qpos) and np.array_equal(ours.data.qvel, theirs.sim.data.qvel)
    for _ in range(2):  # relative poses of robosuite's are one update late
        theirs.sim.forward()
        expected = theirs._get_observations(force_update=True)
    assert np.allclose(ours.observe()[1], expected["object-state"], atol=1e-12)
    assert ours.goal_holds == bool(theirs._check_success())


def _as_obs(simulator):
    state, truth = (part.astype(np.float32)[None, None] for part in simulator.observe())
    return Obs({}, state, truth, ("",))


@pytest.mark.parametrize(("task", "action_kind"), [("lift", "absolute"), ("square", "delta"), ("tool_hang", "absolute")])
def test_rewinding_and_replaying_gives_the_same_bits_and_pixels(robosuite, gl, task, action_kind):
    env = RobosuiteEnv(task, n=2, image_size=32, action_kind=action_kind)
    obs = env.reset([0, 1])
    start = env.get_state()
    actions = wander(1, obs, 8, action_kind)
    before = env.step(actions[:, :4], all_on(2))  # the gripper's command is on its way
    middle, good = env.get_state(), env.goal_holds()
    after, end = env.step(actions[:, 4:], all_on(2)), env.get_state()
    assert same(env.set_state(middle), _last(before.obs)) and np.array_equal(env.goal_holds(), good)
    again = env.step(actions[:, 4:], all_on(2))
    assert same(again.obs, after.obs) and np.array_equal(env.get_state(), end)
    other = RobosuiteEnv(task, n=2, image_size=32, action_kind=action_kind)  # a state means the same in another simulator and place
    other.reset([7])  # what its controllers remember of another episode must not matter
    other.set_state(start[::-1])
    assert np.array_equal(other.step(actions[::-1, :4], all_on(2)).obs.state[::-1], before.obs.state)
    other.set_state(middle[1:])
    assert same(other.step(actions[1:, 4:], all_on(1)).obs, Obs(*_rows(after.obs, slice(1, 2)), ("",)))


def _rows(obs, rows):
    return {name: frames[rows] for name, frames in obs.frames.items()}, obs.state[rows], obs.environment_state[rows]


def _last(obs):
    return Obs({name: frames[:, -1:] for name, frames in obs.frames.items()}, obs.state[:, -1:], obs.environment_state[:, -1:], obs.task)


@pytest.mark.parametrize("left_out", ["fingers", "resting joints"])
def test_each_number_kept_beside_the_engines_state_is_needed(robosuite, left_out):
    from sim.robosuite.simulator import Simulator

    simulator = Simulator("lift", "absolute")
    simulator.reset(0)
    actions = wander(3, _as_obs(simulator), 6)[0]
    actions[:, 9] = [1, 1, -1, 1, 1, 1]
    for action in actions[:4]:
        simulator.step(action)
    saved = simulator.save()
    for action in actions[4:]:
        simulator.step(action)
    end = simulator.save()
    changed = saved.copy()
    changed[-9 : -7 if left_out == "fingers" else None] += 0.1 if left_out == "fingers" else 0
    changed[-7:] += 0.1 if left_out == "resting joints" else 0
    for state, equal in ((saved, True), (changed, False)):
        simulator.reset(5)
        simulator.load(state)
        for action in actions[4:]:
            simulator.step(action)
        assert np.array_equal(simulator.save()[:-9], end[:-9]) == equal


def test_an_episode_depends_on_its_seed_alone_and_workers_change_nothing(robosuite):
    def episodes(seeds, **settings):
        env = RobosuiteEnv("lift", cameras=(), **settings)
        found = [r.episode for r in run_episodes(env, RobosuiteExpert("lift", noise=0.01), seeds, max_steps=6, kind="rollout")]
        env.close()
        return found

    np.random.seed(1)
    drawn = np.random.get_state()[1]
    wide, narrow, spread = episodes([1, 2, 3], n=3), episodes([3, 2], n=1), episodes([1, 2, 3], n=3, workers=2)
    assert np.array_equal(np.random.get_state()[1], drawn)  # numpy's global generator is as it was
    for a, b in [*zip(wide[:0:-1], narrow, strict=True), *zip(wide, spread, strict=True)]:
        assert np.array_equal(a.action, b.action) and same(a, b) and a.task == b.task
    assert not np.array_equal(wide[0].environment_state[0], wide[1].environment_state[0])
    assert not np.array_equal(wide[0].state[0], wide[1].state[0])


def test_inactive_episodes_stand_still_and_the_last_rows_alone_can_be_drawn(robosuite, gl):
    env, last = (RobosuiteEnv("lift", n=2, image_size=32, render_rows=rows) for rows in (None, 1))
    before = env.reset([0, 1])
    actions = wander(2, before, 2)
    last.reset([0, 1])
    steps, drawn = (e.step(actions, np.array([True, False])) for e in (env, last))
    assert steps.valid.tolist() == [[True] * 2, [False] * 2]
    assert (steps.obs.frames["wrist"][1] == before.frames["wrist"][1]).all() and (steps.obs.state[1] == before.state[1]).all()
    assert all(np.array_equal(drawn.obs.frames[c], steps.obs.frames[c][:, -1:]) for c in drawn.obs.frames)


def test_pictures_are_upright_show_the_cube_and_two_tasks_do_not_disturb_each_other(robosuite, gl):
    lift, can = RobosuiteEnv("lift", n=1, image_size=64), RobosuiteEnv("can", n=1, image_size=32)
    a, b = lift.reset([0]), can.reset([0])
    assert same(lift.reset([0]), a) and same(can.reset([0]), b)
    picture = a.frames["external"][0, 0].astype(int)
    red = (picture[..., 0] > 2 * picture[..., 1]) & (picture[..., 0] > 2 * picture[..., 2])  # the cube, on the table's middle
    rows, columns = np.nonzero(red)
    assert len(rows) > 8 and 20 < columns.mean() < 44 and rows.mean() > 24
    assert not ((picture[..., 1] > picture[..., 0] + 60) & (picture[..., 1] > picture[..., 2] + 60)).any()  # green shapes collide, unseen
    dark = picture.sum(-1) < 150
    assert dark[:32].sum() > dark[32:].sum()  # the arm comes from above
    lift.close()
    assert same(can.reset([0]), b)


def test_an_absolute_action_is_the_pose_that_the_hand_goes_to(robosuite):
    env = RobosuiteEnv("lift", n=1, cameras=())
    obs = env.reset([0])
    pose = np.array([[-0.05, 0.08, 0.98, 0.6, 0.0]])
    action = action_to(pose, obs.state[:, 0], "absolute")
    stretched = action.copy()
    stretched[:, 3:9] *= 3  # the rows' lengths mean nothing
    for asked in (action, stretched):
        env.reset([0])
        arrived = env.step(np.repeat(asked[:, None], 30, 1), all_on(1)).obs.state[:, -1]
        assert np.abs(pose_of(arrived) - pose)[0, :4].max() < 0.02


def test_success_is_judged_now_and_rewarded_with_one(robosuite):
    env = RobosuiteEnv("lift", n=2, cameras=())
    obs, policy = env.reset([0, 1]), RobosuiteExpert("lift")
    assert not env.goal_holds().any()
    memory = policy.start(2)
    for _ in range(40):
        action, memory = policy.act(obs, memory, [])
        steps = env.step(action, np.array([True, False]))
        obs = steps.obs
        assert np.array_equal(steps.reward, steps.success) and steps.success[0, 0] == (obs.environment_state[0, 0, 2] > 0.84)
    assert env.goal_holds().tolist() == [True, False]


@pytest.mark.parametrize(
    ("task", "action_kind", "noise", "steps"),
    [
        ("lift", "delta", 0.005, 60),
        ("can", "absolute", 0.005, 160),
        ("square", "absolute", 0.005, 180),
        ("transport", "absolute", 0.0, 500),  # 20 seconds of one core for its two episodes
        ("tool_hang", "absolute", 0.0, 400),
    ],
)
def test_the_scripted_expert_succeeds(robosuite, task, action_kind, noise, steps):
    env, expert = RobosuiteEnv(task, n=2, cameras=(), action_kind=action_kind), RobosuiteExpert(task, noise, action_kind)
    rollouts = run_episodes(env, expert, [51000, 51003], max_steps=steps, kind="demo", stop_after_success=0)
    assert all(r.episode.success for r in rollouts)


@pytest.mark.parametrize(
    ("arm", "phase", "closed", "away", "then"),
    [
        (0, "offer", 0.0, 0.0, "offer"),  # arm 1 is there, its fingers still open
        (0, "offer", 0.6, 0.2, "offer"),  # or closed elsewhere
        (0, "offer", 0.6, 0.0, "given"),
        (0, "given", 0.0, 0.0, "offer"),  # it lost its hold
        (1, "wait", 0.6, 0.0, "above hammer"),
        (1, "take", 0.6, 0.0, "take"),  # arm 0 still holds the hammer
        (1, "take", 0.0, 0.0, "take"),  # or has opened its fingers, which are still around it
        (1, "take", 0.0, 0.2, "lift"),
    ],
)
def test_transports_arms_wait_for_each_other(arm, phase, closed, away, then):
    along_y = [-np.sqrt(0.5), 0, 0, np.sqrt(0.5)]
    seen = np.concatenate([transport.MEET, along_y, np.zeros(34)])
    seen[[13, 28]] = 1  # the trash lies straight, where it belongs
    hands = [
        np.append(transport.MEET - [0, transport.NEAR, 0], [np.pi / 2, 0, 0.6]),
        np.append(transport.MEET - [0, -transport.FAR, 0], [-np.pi / 2, transport.TAKE, 0.6]),
    ]
    hands[1 - arm] += [0, 0, away, 0, 0, closed - 0.6]
    script = transport.SCRIPTS[arm]
    names = [p.name for p in script.phases]
    progress, _ = follow(
        script, hands[arm][None], np.append(seen, hands[1 - arm])[None], Progress(np.array([names.index(phase)]), np.array([0]))
    )
    assert names[progress.phase[0]] == then


def test_open_loop_actions_ignore_the_objects(robosuite):
    env, policy = RobosuiteEnv("lift", n=2, cameras=()), RobosuiteOpenLoop("lift")
    seen = next(run_episodes(env, policy, [0, 1], max_steps=30, kind="rollout")).episode
    memory, rng = policy.start(1), [np.random.default_rng([0, 0])]
    for k in range(30):
        action, memory = policy.act(Obs({}, seen.state[None, :1], None, ("",)), memory, rng)
        assert np.array_equal(action[0, 0], seen.action[k])
    assert np.ptp(seen.state[:, :3], axis=0).min() > 0.02 and set(np.unique(seen.action[:, 9])) == {-1, 1}


def hands(n):
    rng = np.random.default_rng(0)
    half = rng.uniform(0, np.pi, n)
    turn = np.column_stack([np.cos(half), np.sin(half), rng.normal(0, 0.02, (n, 2))])  # about pointing down
    return np.column_stack([rng.normal(0, 0.1, (n, 2)), np.full(n, 1), turn / np.linalg.norm(turn, axis=1)[:, None], np.full((n, 2), 0.04)])


@pytest.mark.parametrize("task", SCRIPTS)
def test_policies_fit_the_protocol_and_noise_comes_from_each_episodes_generator(task):
    arms = TASKS[task].arms
    state = np.tile(hands(2).astype(np.float32), arms)[:, None]
    obs = Obs({}, state, np.random.default_rng(0).normal(size=(2, 1, TASKS[task].truth)).astype(np.float32), ("", ""))
    for policy, width in ((RobosuiteExpert(task, 0.02), 10), (RobosuiteExpert(task, 0.02, "delta"), 7), (RobosuiteOpenLoop(task), 10)):
        assert isinstance(policy, Policy)
        both, _ = policy.act(obs, policy.start(2), [np.random.default_rng(i) for i in (0, 1)])
        part = Obs({}, obs.state[1:], obs.environment_state[1:], ("",))
        alone, _ = policy.act(part, policy.start(1), [np.random.default_rng(1)])
        assert both.shape == (2, 1, arms * width) and both.dtype == np.float32 and np.array_equal(both[1], alone[0])
    with pytest.raises(UserError, match="needs simulator truth"):
        RobosuiteExpert(task).act(Obs({}, obs.state, None, ("", "")), RobosuiteExpert(task).start(2), [])


def test_the_hands_pose_and_the_action_to_it_belong_together():
    state = hands(50)
    pose = pose_of(state)
    turned = from_six(action_to(pose, state, "absolute")[:, 3:9].astype(float))
    assert np.allclose(turned @ turned.swapaxes(1, 2), np.eye(3), atol=1e-6) and np.allclose(turned[:, 2, 2], -1)
    quarter = np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]])
    assert np.abs(turned - from_quaternion(state[:, 3:7]) @ quarter).max() < 0.2  # all that is left out is a small tilt
    delta = action_to(pose + np.array([0.025, -0.05, 0.2, 0, 0]), state, "delta")
    assert np.allclose(delta[:, :3], [[0.5, -1, 1]], atol=1e-5) and (np.abs(delta[:, 3:6]) < 0.4).all()
    assert np.allclose(action_to(pose + np.array([0, 0, 0, 0.25, 0]), state, "delta")[:, 5] - delta[:, 5], 0.5, atol=0.05)


def test_a_tilted_pose_comes_back_as_it_was_asked_for_and_one_without_tilt_points_down():
    rng = np.random.default_rng(0)
    pose = np.column_stack([rng.normal(size=(50, 3)), rng.uniform(-2, 3, 50), rng.uniform(-1.5, 1.5, 50), rng.integers(0, 2, 50)])
    action = action_to(pose, hands(50), "absolute")
    turn = from_six(action[:, 3:9].astype(float)) @ np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])  # of the hand, not the grip site
    state = np.column_stack([action[:, :3], Rotation.from_matrix(turn).as_quat(), np.outer(1 - pose[:, 5], [0.04, -0.04])])
    assert np.allclose(tilted_pose_of(state), pose, atol=1e-5)
    level = np.where(np.arange(6) == 4, 0, pose)
    assert np.array_equal(action_to(level, state, "delta"), action_to(np.delete(pose, 4, axis=1), state, "delta"))


def test_six_numbers_are_any_rotation_whatever_their_length():
    rng = np.random.default_rng(0)
    turns = from_quaternion(rng.normal(size=(100, 4)))
    assert np.allclose(np.linalg.det(turns), 1)
    assert np.allclose(from_six(to_six(turns) * np.repeat(rng.uniform(0.1, 9, (100, 2)), 3, 1)), turns)
    odd = from_six(np.array([[0.0] * 6, [1, 0, 0, 2, 0, 0], [0, 0, 0, 0, 1, 0], [0, 3, 0, 0, 0, 0]]))
    assert np.allclose(odd @ odd.swapaxes(1, 2), np.eye(3)) and np.allclose(np.linalg.det(odd), 1)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: RobosuiteEnv(cameras=("wirst",)), "wrist"),
        (lambda: RobosuiteEnv("lift", cameras=("wrist1",)), "robosuite/lift"),
        (lambda: RobosuiteEnv("sqare"), "square"),
        (lambda: RobosuiteEnv(action_kind="deltas"), "delta"),
        (lambda: RobosuiteEnv(image_size=16), "32 to 256"),
        (lambda: RobosuiteEnv(n=0), "n=0"),
        (lambda: RobosuiteExpert("sqare"), "did you mean 'square'"),
        (
            lambda: RobosuitePerson("transport", RobosuiteExpert("transport")),
            "nobody watches robosuite/transport: known: lift, can, square",
        ),
    ],
)
def test_bad_settings_name_what_is_wrong(build, named):
    with pytest.raises(UserError, match=named):
        build()


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "robosuite"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "robosuite", None)
    with pytest.raises(UserError, match=r"pip install -e '.\[robosuite\]'") as caught:
        RobosuiteEnv(cameras=(), workers=2)
    assert "\n" not in str(caught.value)


def test_collect_records_demonstrations_that_the_robomimic_format_names(robosuite, gl, tmp_path):
    words = ["env=robosuite/lift", "actor=robosuite_expert", "size=debug", "until_successes=1", "env.n=1"]
    assert main(["collect", *words, f"output_dir={tmp_path / 'a'}"]) == 0
    export_robomimic(EpisodeStore.open(tmp_path / "a"), tmp_path / "a.hdf5")
    with h5py.File(tmp_path / "a.hdf5") as file:
        observed = file["data/demo_0/obs"]
        assert {"robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object", "wrist_image"} <= set(observed)
        assert observed["object"].shape[1] == 10 and observed["robot0_eef_quat"].shape[1] == 4


def test_a_person_sees_the_way_shrink_and_brings_the_hand_back(robosuite):
    env, person = RobosuiteEnv("lift", n=1, cameras=()), RobosuitePerson("lift", RobosuiteExpert("lift"))
    (rollout,) = run_episodes(env, person.policy, [50_000], max_steps=60, kind="rollout", stop_after_success=0)
    state, truth = rollout.episode.state, rollout.episode.environment_state
    way = person.way(Obs({}, state[:, None], truth[:, None], ("",) * len(state)))
    assert rollout.episode.success == 1 and way[-1] < 0.05 < way[0]
    back = person.back(Obs({}, state[-1:, None], truth[-1:, None], ("",)), state[:1])
    assert ((state[0, :3] - state[-1, :3]) * (back[0, :3] - state[-1, :3]) >= 0).all() and back[0, -1] == -1  # open again
