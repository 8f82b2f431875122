"""An imagined environment with a judge: the success classifier says after each step whether the goal holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from robowm.protocols import Env
from robowm.reward.success import SuccessClassifier
from robowm.types import Obs, Steps


class JudgedEnv:
    """Wraps an Env. A step's reward is P(goal holds); success is True once it was at or above the threshold for ``consecutive`` rows.

    So ``run_episodes(..., stop_after_success=k)`` cuts an imagined episode k steps after its success is confirmed, and no world-model
    step is spent beyond.
    """

    def __init__(self, env: Env, classifier: SuccessClassifier):
        self._env, self._classifier = env, classifier
        self.n, self.fps, self.task_name = env.n, env.fps, env.task_name

    def reset(self, seeds: Sequence[int]) -> Obs:
        """See Env."""
        obs = self._env.reset(seeds)
        self._classifier.check_tasks(obs.task)
        self._past = {camera: obs.frames[camera] for camera in self._classifier.net.cameras}  # the rows a window may reach back to
        self._run = np.zeros(len(seeds), int)  # [N] rows in a row at or above the threshold
        return obs

    def goal_holds(self) -> np.ndarray:
        """False: the reset state cannot succeed."""
        return np.zeros(len(self._run), bool)

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        """See Env."""
        steps = self._env.step(actions, active)
        h = steps.valid.shape[1]
        seen = {camera: np.concatenate([past, steps.obs.frames[camera]], 1) for camera, past in self._past.items()}
        self._past = {camera: frames[:, -max(1, self._classifier.net.rows - 1) :] for camera, frames in seen.items()}
        probability = np.zeros((len(active), h), np.float32)
        probability[active] = self._classifier.probabilities({camera: frames[active] for camera, frames in seen.items()})[:, -h:]
        success = np.zeros((len(active), h), bool)
        for k in range(h):
            self._run = np.where(probability[:, k] >= self._classifier.threshold, self._run + 1, 0)
            success[:, k] = self._run >= self._classifier.consecutive
        return dataclasses.replace(steps, reward=probability, success=success)
