from __future__ import annotations

import numpy as np
import pytest

from robowm.errors import UserError
from sim.tabletop import TabletopEnv
from sim.tabletop.control import WORKSPACE
from sim.tabletop.tasks import load_task, task_names

TASKS = ("insert", "pick_place", "push")


def starts(task: str, seeds, start_range: float = 1.0):
    obs = TabletopEnv(task, n=len(seeds), cameras=(), start_range=start_range).reset(seeds)
    return obs.state[:, 0], obs.environment_state[:, 0]


def test_the_three_tasks_are_found_by_file_name():
    assert task_names() == list(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_no_goal_holds_at_reset_and_everything_starts_within_reach(task):
    state, truth = starts(task, range(1000))
    assert not load_task(task).holds(state, truth).any()
    inside = (WORKSPACE[:2, 0] <= truth[:, :2]) & (truth[:, :2] <= WORKSPACE[:2, 1])
    assert inside.all()


@pytest.mark.parametrize("task", TASKS)
def test_a_start_state_depends_on_the_seed_alone(task):
    together = np.concatenate(starts(task, [3, 4, 5]), axis=1)
    alone = np.concatenate(starts(task, [4]), axis=1)
    assert np.array_equal(together[1], alone[0])
    assert not np.array_equal(together[0], together[1])


def test_start_range_narrows_the_starts_around_the_same_centre():
    wide, narrow, fixed = (starts("pick_place", range(200), r)[1][:, :2] for r in (1.0, 0.5, 0.0))
    assert np.ptp(narrow, axis=0) == pytest.approx(np.ptp(wide, axis=0) / 2, rel=1e-5)
    assert (np.ptp(fixed, axis=0) == 0).all()
    assert fixed[0] == pytest.approx((wide.max(0) + wide.min(0)) / 2, abs=0.005)


def test_pick_place_wants_the_cube_low_in_the_tray_and_released():
    holds = load_task("pick_place").holds
    state, truth = np.array([0, 0, 0.1, 0, 0.1]), np.array([0.05, 0.05, 0.02, 1, 0, 0, 0, 0.05, 0.05, 0])
    assert holds(state, truth)
    held, high, beside, tipped = state.copy(), truth.copy(), truth.copy(), truth.copy()
    held[4], high[2], beside[0] = 0.5, 0.05, 0.08
    tipped[3:7] = [np.cos(0.2), np.sin(0.2), 0, 0]
    assert not holds(held, truth)
    assert not any(holds(state, wrong) for wrong in (high, beside, tipped))


def test_pick_place_takes_the_cube_on_any_face_but_not_on_an_edge():
    holds, state = load_task("pick_place").holds, np.array([0, 0, 0.1, 0, 0.1])
    half = np.sqrt(0.5)
    faces = [[half, half, 0, 0], [half, 0, half, 0], [half, 0, 0, half], [0, 1, 0, 0], [half, -half, 0, 0]]
    edges = [[np.cos(np.pi / 8), np.sin(np.pi / 8), 0, 0], [np.cos(0.1), 0, np.sin(0.1), 0]]
    at = lambda turned: np.array([0.05, 0.05, 0.02, *turned, 0.05, 0.05, 0])  # noqa: E731
    assert all(holds(state, at(turned)) for turned in faces)
    assert not any(holds(state, at(turned)) for turned in edges)


def test_an_unknown_task_names_the_nearest_one():
    with pytest.raises(UserError, match="pick_place"):
        load_task("pick_plase")
    with pytest.raises(UserError, match="nowhere"):
        load_task("nowhere.at_all")
