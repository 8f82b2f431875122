from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robowm.errors import UserError
from robowm.protocols import Policy
from robowm.rollout import run_episodes
from robowm.types import Obs
from sim.experts import AsDelta, Hesitant, NeverMoves, OpenLoop, Perturbed, ScriptedExpert
from sim.experts.hesitant import held_pose
from sim.experts.insert import SCRIPT
from sim.experts.person import TabletopPerson
from sim.experts.waypoints import Progress, fold, plan
from sim.tabletop import TabletopEnv
from sim.tabletop.tasks.insert import CLEARANCE

TASKS = ("push", "pick_place", "insert")


def run(task, policy, episodes, max_steps=80, stop=0, **settings):
    env = TabletopEnv(task, n=min(episodes, 50), cameras=(), **settings)
    return list(run_episodes(env, policy, range(episodes), max_steps=max_steps, kind="demo", stop_after_success=stop))


def rate(rollouts):
    return np.mean([rollout.episode.success for rollout in rollouts])


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_succeeds_on_95_of_100_starts_through_the_policy_interface(task):
    rollouts = run(task, ScriptedExpert(task), 100)
    lengths = [len(rollout.episode) for rollout in rollouts]
    assert rate(rollouts) >= 0.95
    assert 20 <= np.median(lengths) <= 60


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_corrects_a_disturbance_of_its_own_actions(task):
    assert rate(run(task, ScriptedExpert(task, noise=0.005), 60)) >= 0.90


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_plans_eight_steps_ahead(task):
    assert rate(run(task, ScriptedExpert(task, chunk=8), 30)) >= 0.95


@pytest.mark.parametrize("task", TASKS)
def test_never_moving_never_succeeds(task):
    rollouts = run(task, NeverMoves(chunk=8), 30)
    assert rate(rollouts) == 0
    states = np.stack([rollout.episode.state for rollout in rollouts])
    assert np.abs(states - states[:, :1]).max() < 0.03


def test_a_misplaced_peg_jams_on_the_walls():
    def shifted(truth):
        off = truth.copy()
        off[:, 7] += 2 * CLEARANCE
        return off

    script = replace(SCRIPT, poses=lambda s, t: SCRIPT.poses(s, shifted(t)), resume=lambda phase, s, t: phase)
    env = TabletopEnv("insert", n=20, cameras=())
    obs, progress = env.reset(range(20)), Progress(np.zeros(20, int), np.zeros(20, int))
    for _ in range(60):
        actions, progress = plan(script, obs.state[:, -1], obs.environment_state[:, -1], progress, 1)
        obs = env.step(actions.astype(np.float32), np.ones(20, bool)).obs
        assert not env.goal_holds().any()
    assert (progress.phase >= 6).mean() > 0.9  # they got as far as pushing down


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_drives_a_delta_environment_through_as_delta(task):
    assert rate(run(task, AsDelta(ScriptedExpert(task)), 30, action_kind="delta")) >= 0.95


def test_open_loop_actions_ignore_the_object_but_touch_it_sometimes():
    rollouts = run("pick_place", OpenLoop(chunk=4), 60, max_steps=60, stop=None)
    moved = [np.abs(r.episode.environment_state[:, :2] - r.episode.environment_state[0, :2]).max() > 0.005 for r in rollouts]
    assert 0.2 < np.mean(moved) < 0.95
    policy, seen = OpenLoop(chunk=6), rollouts[0].episode
    elsewhere = seen.environment_state[None, :1] + 0.05
    acts = [
        policy.act(Obs({}, seen.state[None, :1], truth, ("",)), policy.start(1), [np.random.default_rng(3)])[0]
        for truth in (seen.environment_state[None, :1], elsewhere)
    ]
    assert np.array_equal(*acts)
    steps = np.abs(np.diff(np.stack([r.episode.action for r in rollouts])[..., :3], axis=1))
    assert steps.max() < 0.08  # smooth


def test_perturbed_adds_smooth_noise_of_the_given_size_and_leaves_the_gripper_alone():
    policy = Perturbed(NeverMoves(chunk=200), noise=0.01)
    obs = Obs({}, np.zeros((8, 1, 5), np.float32), None, ("",) * 8)
    actions, _ = policy.act(obs, policy.start(8), [np.random.default_rng(i) for i in range(8)])
    assert actions[..., :3].std() == pytest.approx(0.01, rel=0.15) and actions[..., 3].std() == pytest.approx(0.1, rel=0.15)
    assert (actions[..., 4] == 0).all()
    assert np.corrcoef(actions[:, :-1, 0].ravel(), actions[:, 1:, 0].ravel())[0, 1] > 0.5


@pytest.mark.parametrize("policy", [ScriptedExpert(noise=0.01, chunk=3), NeverMoves(3), OpenLoop(3), Perturbed(OpenLoop(3))])
def test_policies_fit_the_protocol_draw_from_each_episodes_generator_and_keep_memory_apart(policy):
    assert isinstance(policy, Policy) and policy.name.startswith("sim.experts")
    env = TabletopEnv(n=3, cameras=())
    obs, rngs = env.reset(range(3)), lambda order: [np.random.default_rng(10 + i) for i in order]
    memory = policy.start(3)
    first, after = policy.act(obs, memory, rngs(range(3)))
    again, _ = policy.act(obs, memory, rngs(range(3)))  # the old memory still means what it meant
    assert np.array_equal(first, again) and first.dtype == np.float32 and first.shape == (3, 3, 5)
    alone, _ = policy.act(env.reset([2]), policy.start(1), rngs([2]))
    assert np.array_equal(first[2], alone[0])
    assert after is not memory or memory is None


def test_an_expert_without_simulator_truth_says_so():
    with pytest.raises(UserError, match="simulator truth"):
        ScriptedExpert().act(Obs({}, np.zeros((1, 1, 5), np.float32), None, ("",)), ScriptedExpert().start(1), [])
    with pytest.raises(UserError, match="no scripted expert for task 'juggle'"):
        ScriptedExpert("juggle")


def test_fold_shifts_into_half_open_periods():
    assert fold(np.array([0.0, np.pi / 2, np.pi / 4, -np.pi / 4]), np.pi / 2) == pytest.approx([0, 0, -np.pi / 4, -np.pi / 4])


def test_hesitant_demonstrations_succeed_and_take_longer():
    straight, hesitant = run("pick_place", ScriptedExpert("pick_place"), 30), run("pick_place", hesitates(), 30)
    median = lambda rollouts: np.median([len(rollout.episode) for rollout in rollouts])  # noqa: E731
    assert rate(hesitant) > 0.6 and median(hesitant) > median(straight) + 4
    alone = run("pick_place", hesitates(), 1)[0].episode
    assert np.array_equal(alone.action, hesitant[0].episode.action)
    assert np.array_equal(run("pick_place", hesitates(pause=0.0, detour=0.0), 1)[0].episode.action, straight[0].episode.action)
    with pytest.raises(UserError, match=r"pause=0.7, detour=0.7"):
        hesitates(pause=0.7, detour=0.7)


def hesitates(**chances):
    return Hesitant(ScriptedExpert("pick_place"), held_pose, **chances)


def test_a_pause_stands_still_and_a_detour_goes_one_way():
    episode = run("pick_place", hesitates(pause=1.0, detour=0.0), 1, max_steps=10, stop=None)[0].episode
    np.testing.assert_allclose(episode.action[:, :3], episode.state[:-1, :3], atol=1e-6)
    away = run("pick_place", hesitates(pause=0.0, detour=1.0), 1, max_steps=4, stop=None)[0].episode
    moved = away.action[:3, :3] - away.state[:3, :3]
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 0.012, rtol=1e-3)
    np.testing.assert_allclose(moved[1:], moved[:-1], atol=1e-5)


def test_a_person_sees_the_way_shrink_to_nought_and_brings_the_hand_back():
    person = TabletopPerson("pick_place", ScriptedExpert("pick_place"))
    episode = run("pick_place", person.policy, 1, stop=3)[0].episode
    way = person.way(Obs({}, episode.state[:, None], episode.environment_state[:, None], ("",) * (len(episode) + 1)))
    assert way[0] > 0.1 and way[-1] == 0 and np.diff(way[:-4]).max() < 0.01
    obs = Obs({}, episode.state[20:21, None], episode.environment_state[20:21, None], ("",))
    back = person.back(obs, episode.state[:1])
    gone = episode.state[0, :3] - episode.state[20, :3]
    np.testing.assert_allclose(back[0, :3] - episode.state[20, :3], np.clip(gone, -0.012, 0.012), atol=1e-6)
    with pytest.raises(UserError, match="needs simulator truth"):
        person.way(replace(obs, environment_state=None))
