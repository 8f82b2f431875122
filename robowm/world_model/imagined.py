"""A world model as an environment: the policy that acts in the simulator acts in here unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from robowm.errors import UserError
from robowm.protocols import WorldModel
from robowm.types import Obs, Steps

NOISE_SALT = 7  # keeps the model's noise apart from the policy's, which run_episodes seeds by start seed alone


class ImaginedEnv:
    """Satisfies ``protocols.Env``. Nobody can judge success in here, so ``success`` and ``goal_holds`` are False throughout.

    Args:
        world_model: predicts ``world_model.chunk`` rows at a time.
        starts: maps start seeds to their real first observations (K = 1 rows).
        n: rollouts side by side.
        fps, task_name: of the environment that the model imitates.
        draw: number of the noise draw; another one imagines the same actions anew.
    """

    def __init__(
        self, world_model: WorldModel, starts: Callable[[Sequence[int]], Obs], n: int, fps: float, task_name: str, draw: int = 0
    ) -> None:
        self.n, self.fps, self.task_name = n, fps, task_name
        self._model, self._starts, self._draw = world_model, starts, draw

    def reset(self, seeds: Sequence[int]) -> Obs:
        """See Env."""
        if not 0 < len(seeds) <= self.n:
            raise UserError(f"reset got {len(seeds)} seeds; this environment runs 1 to {self.n} episodes side by side")
        self._rngs = [np.random.default_rng([NOISE_SALT, self._draw, int(seed)]) for seed in seeds]
        obs = replace(self._starts(seeds), environment_state=None)
        self._memory = self._model.start(obs)
        return obs

    def goal_holds(self) -> np.ndarray:
        """See Env."""
        return np.zeros(len(self._rngs), bool)

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        """See Env. Every rollout moves on, inactive ones too: they share the batch, and their rows are marked invalid.

        H must be a whole number of predicted chunks, except that the last chunk may be cut: its missing actions repeat the last one, and
        the rows after H are dropped, which ends the rollout's validity beyond them.
        """
        n, h, _ = actions.shape
        chunk = self._model.chunk
        filled = np.concatenate([actions, np.repeat(actions[:, -1:], -h % chunk, 1)], 1)
        parts = []
        for first in range(0, filled.shape[1], chunk):
            obs, self._memory = self._model.predict(self._memory, filled[:, first : first + chunk], self._rngs)
            parts.append(obs)
        frames = {c: np.concatenate([obs.frames[c] for obs in parts], 1)[:, :h] for c in parts[0].frames}
        state = np.concatenate([obs.state for obs in parts], 1)[:, :h]
        nothing = np.zeros((n, h), bool)
        valid = np.repeat(active[:, None], h, 1)
        return Steps(Obs(frames, state, None, parts[0].task), np.zeros((n, h), np.float32), nothing, nothing, valid)
