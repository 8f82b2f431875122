from __future__ import annotations

import numpy as np
import pytest

from robowm.errors import UserError
from sim.experts import OpenLoop, ScriptedExpert
from sim.tabletop import TabletopEnv
from sim.tabletop.hidden import HIDDEN_NAMES

# Where two pucks of push (seeds 3, 4) lay after a hit along these targets, recorded before anything could be hidden.
HIT = np.repeat(np.array([[0.0, 0.09, 0.03, 0, 1], [0.0, 0.09, 0.018, 0, 1], [0.0, -0.05, 0.018, 0, 1]], np.float32), [4, 3, 6], 0)
PUCKS = [[0.04822, -0.03715, 0.01398, 0.98738, 0.0, 0.0, 0.15839], [0.0377, -0.00861, 0.01398, 0.98401, 0.0, 0.0, 0.17811]]


def all_on(n):
    return np.ones(n, bool)


def recorded(task, hidden, seeds, steps=30, n=None, policy=None, **settings):
    """Return the expert's actions [N, T, 5] on the unhidden task and what they do with ``hidden``: truth [N, T, E]."""
    env, policy = TabletopEnv(task, n=len(seeds), cameras=()), policy or ScriptedExpert(task)
    obs, memory, rngs = env.reset(seeds), policy.start(len(seeds)), [np.random.default_rng(seed) for seed in seeds]
    actions = []
    for _ in range(steps):
        action, memory = policy.act(obs, memory, rngs)
        actions.append(action)
        obs = env.step(action, all_on(len(seeds))).obs
    actions = np.concatenate(actions, 1)
    other = TabletopEnv(task, n=n or len(seeds), cameras=(), hidden=hidden, **settings)
    size, truth = n or len(seeds), []
    for first in range(0, len(seeds), size):
        part = slice(first, first + size)
        other.reset(seeds[part])
        truth.append(other.step(actions[part], all_on(len(seeds[part]))).obs.environment_state)
    other.close()
    return actions, np.concatenate(truth)


@pytest.mark.parametrize("task", ["push", "pick_place", "insert"])
def test_the_start_that_a_seed_shows_does_not_change_with_what_is_hidden(gl, task):
    plain, *hidden = (TabletopEnv(task, n=4, image_size=32, hidden=h).reset(range(4)) for h in (0.0, 0.5, 1.0))
    for obs in hidden:
        assert np.array_equal(obs.state, plain.state)
        assert np.array_equal(obs.environment_state[..., :15], plain.environment_state)
        assert all(np.array_equal(obs.frames[camera], plain.frames[camera]) for camera in plain.frames)
        assert len(np.unique(obs.environment_state[:, 0, 15:], axis=0)) == 4
    half, whole = (np.log(obs.environment_state[:, 0, 15:]) for obs in hidden)
    nominal = 2 * half - whole  # the same draws, stretched in the logarithm
    assert np.ptp(nominal, axis=0).max() < 1e-4 and 0.005 < np.exp(nominal[0, 0]) < 0.1, "kilograms"


def test_without_it_nothing_is_recorded_and_states_are_as_long_as_before():
    plain, hidden = TabletopEnv(n=1, cameras=()), TabletopEnv(n=1, cameras=(), hidden=0.5)
    assert plain.spec()["environment_state_names"] == hidden.spec()["environment_state_names"][:-3]
    assert hidden.spec()["environment_state_names"][-3:] == list(HIDDEN_NAMES)
    sizes = [len(env.reset([0]).environment_state[0, 0]) for env in (plain, hidden)]
    assert sizes == [15, 18] and hidden.get_state().shape[1] == plain.get_state().shape[1] + 3


def test_without_it_a_hit_ends_where_it_always_did():
    env = TabletopEnv("push", n=2, cameras=())
    env.reset([3, 4])
    truth = env.step(HIT[None].repeat(2, 0), all_on(2)).obs.environment_state
    np.testing.assert_allclose(truth[:, -1, :7], PUCKS, atol=2e-4)


@pytest.mark.parametrize("task", ["pick_place", "insert"])
def test_nominal_numbers_move_much_as_if_nothing_were_hidden(task):
    actions, plain = recorded(task, 0.0, [0, 1, 2])
    env = TabletopEnv(task, n=3, cameras=(), hidden=1.0)
    env.reset([0, 1, 2])
    state = env.get_state()
    state[:, -3:] = env._batch._differing[0].nominal
    env.set_state(state)
    np.testing.assert_allclose(env.step(actions, all_on(3)).obs.environment_state[..., :3], plain[..., :3], atol=0.004)


@pytest.mark.parametrize("task", ["push", "pick_place", "insert"])
def test_an_object_at_rest_does_not_show_what_it_hides(task):
    env = TabletopEnv(task, n=12, cameras=(), hidden=1.0)
    start = env.reset(range(12))
    rested = env.step(start.state.repeat(10, 1), all_on(12)).obs.environment_state
    moved = (rested - start.environment_state)[..., :3]
    assert np.ptp(moved, axis=0).max() < 2e-4 and np.abs(moved).max() < 3e-4


@pytest.mark.parametrize("task", ["push", "pick_place"])
def test_after_a_contact_the_same_actions_have_several_futures(task):
    actions, _ = recorded(task, 0.0, [5], steps=35)
    env = TabletopEnv(task, n=6, cameras=(), hidden=1.0)
    env.reset([5] * 6)
    state = env.get_state()
    assert (state == state[0]).all(), "a seed's numbers do not depend on the slot"
    env.reset(range(100, 106))
    state[:, -3:] = env.get_state()[:, -3:]
    env.set_state(state)
    place = env.step(actions.repeat(6, 0), all_on(6)).obs.environment_state[..., :3]
    assert np.ptp(place[:, 4], axis=0).max() < 2e-4, "before the contact all rest"
    assert np.ptp(place[:, -1], axis=0).max() > 1.5e-3


def test_it_is_a_function_of_the_seed_whatever_runs_beside():
    seeds = [7, 8, 9, 10]
    _, side_by_side = recorded("push", 1.0, seeds)
    _, alone = recorded("push", 1.0, seeds, n=1)
    _, spread = recorded("push", 1.0, seeds, workers=2)
    assert np.array_equal(side_by_side, alone) and np.array_equal(side_by_side, spread)


def test_a_state_carries_its_hidden_numbers_exactly():
    env, other = (TabletopEnv("pick_place", n=3, cameras=(), hidden=1.0) for _ in range(2))
    expert, rngs = ScriptedExpert("pick_place"), [np.random.default_rng(i) for i in range(3)]
    obs, memory = env.reset([0, 1, 2]), expert.start(3)
    for _ in range(18):  # into the grasp
        actions, memory = expert.act(obs, memory, rngs)
        obs = env.step(actions, all_on(3)).obs
    saved, order = env.get_state(), [2, 0, 1]
    replayed = np.random.default_rng(1).uniform([-0.1, -0.1, 0.014, -1, 0], [0.1, 0.1, 0.08, 1, 1], (3, 6, 5)).astype(np.float32)
    first, end = env.step(replayed, all_on(3)).obs.environment_state, env.get_state()
    other.reset([50, 51, 52])  # other numbers in all slots
    back = other.set_state(saved[order])
    assert np.array_equal(back.environment_state[:, 0], obs.environment_state[order, -1])
    assert np.array_equal(other.step(replayed[order], all_on(3)).obs.environment_state, first[order])
    assert np.array_equal(other.get_state(), end[order])


def test_open_loop_hits_stay_inside_the_world_at_the_most_that_can_be_hidden():
    _, truth = recorded("push", 2.0, list(range(12)), steps=40, policy=OpenLoop())
    assert np.isfinite(truth).all() and np.abs(truth[..., :2]).max() < 5


@pytest.mark.parametrize("hidden", [-0.1, 2.5, float("nan")])
def test_an_impossible_amount_is_refused(hidden):
    with pytest.raises(UserError, match="choose 0"):
        TabletopEnv(n=1, cameras=(), hidden=hidden)
