import dataclasses

import numpy as np
import pytest

from robowm.errors import UserError
from robowm.imagine.judged import JudgedEnv
from robowm.reward.success import SuccessClassifier, SuccessNet
from robowm.rollout import Replay, run_episodes
from robowm.types import Steps
from tests.imagine.fakes import observe, reader


class Levels:
    """Shows a given brightness per step."""

    n, fps, task_name = 2, 10.0, "fake/levels"

    def __init__(self, levels):
        self._levels = np.array(levels)

    def reset(self, seeds):
        self._t = np.zeros(len(seeds), int)
        return observe(self._levels[: len(seeds), :1])

    def goal_holds(self):
        return np.zeros(len(self._t), bool)

    def step(self, actions, active):
        h = actions.shape[1]
        times = np.minimum(self._t[:, None] + np.arange(1, h + 1) * active[:, None], self._levels.shape[1] - 1)
        self._t = times[:, -1]
        no = np.zeros(times.shape, bool)
        return Steps(observe(self._levels[np.arange(len(times))[:, None], times]), no.astype(np.float32), no, no, no | active[:, None])


def rolled(levels, chunk, max_steps=6, **options):
    env = JudgedEnv(Levels(levels), reader())
    replay = Replay([np.zeros((max_steps, 2), np.float32)] * len(levels), chunk)
    return list(run_episodes(env, replay, range(len(levels)), max_steps=max_steps, kind="imagined", **options))


def test_success_needs_rows_in_a_row_and_not_the_reset_row():
    for chunk in (1, 2, 3):
        one, other = rolled([[255, 255, 0, 255, 255, 0, 0], [0, 255, 255, 255, 0, 255, 255]], chunk)
        np.testing.assert_array_equal(one.success_steps, [0, 0, 0, 0, 1, 0, 0])
        np.testing.assert_array_equal(other.success_steps, [0, 0, 1, 1, 0, 0, 1])
        np.testing.assert_array_equal(one.episode.reward, [1, 0, 1, 1, 0, 0])


def test_an_episode_is_cut_after_its_confirmed_success():
    one, other = rolled([[0, 0, 255, 255, 0, 0, 0], [0] * 7], chunk=2, stop_after_success=1)
    assert (len(one.episode), len(other.episode)) == (4, 6)
    assert np.isnan(one.episode.success)


def test_a_task_that_the_judge_was_not_trained_on_is_refused():
    env = JudgedEnv(Levels([[0, 0]]), dataclasses.replace(reader(), tasks=("insert",)))
    with pytest.raises(UserError, match="success classifier judge was trained on 'insert', here the task is"):
        env.reset([0])


def test_online_and_afterwards_the_judge_says_the_same():
    """A real network with memory: judging chunk by chunk equals judging the whole episode."""
    classifier = SuccessClassifier("net", SuccessNet({"external": (4, 4)}, rows=3, width=8).eval(), 0.5, 2)
    levels = np.random.default_rng(0).integers(0, 256, (2, 7))
    for chunk in (1, 2, 3):
        env = JudgedEnv(Levels(levels), classifier)
        replay = Replay([np.zeros((6, 2), np.float32)] * 2, chunk)
        for rollout in run_episodes(env, replay, range(2), max_steps=6, kind="imagined"):
            whole = classifier.probabilities(rollout.episode.frames)
            np.testing.assert_allclose(rollout.episode.reward, whole[1:], rtol=1e-5)
