"""An environment that is a world model: policies act in it as they do in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from robowm.errors import UserError
from robowm.protocols import WorldModel
from robowm.types import Obs, Steps

STREAM = 7  # keeps the model's noise apart from the policy's, which run_episodes seeds by (salt, start seed)
Starts = Callable[[Sequence[int]], Obs]  # seeds -> the real first observations, K = 1 rows


class ImaginedEnv:
    """Satisfies ``robowm.protocols.Env``. Nobody can judge here: rewards are 0, success, goal and termination False.

    Args:
        world_model: predicts ``chunk`` rows at a time; a policy's longer chunks become several predictions.
        starts: gives the real observations that episodes start from.
        n: episodes side by side.
        fps: control steps per second, as in the world model's data.
        task_name: as in the environment that it imitates.
        salt: separates the sampler's noise of several imaginations of the same starts.
    """

    def __init__(self, world_model: WorldModel, starts: Starts, n: int, fps: float, task_name: str, *, salt: int = 0) -> None:
        if n < 1:
            raise UserError(f"an imagined environment needs n >= 1, found {n}")
        self.world_model, self.n, self.fps, self.task_name = world_model, n, fps, task_name
        self._starts, self._salt = starts, salt

    def reset(self, seeds: Sequence[int]) -> Obs:
        """See Env: the real first observations of ``seeds``."""
        if not 0 < len(seeds) <= self.n:
            raise UserError(f"{self.task_name}: {len(seeds)} seeds for an imagined environment with n={self.n}; pass 1 to {self.n}")
        obs = self._starts(seeds)
        if len(obs) != len(seeds):
            raise UserError(f"{self.task_name}: asked for {len(seeds)} start observations, found {len(obs)}")
        self._rngs = [np.random.default_rng([STREAM, self._salt, int(seed)]) for seed in seeds]
        self._memory = self.world_model.start(obs)
        cameras = self.world_model.cameras
        self._last = Obs({c: obs.frames[c][:, -1:] for c in cameras}, obs.state[:, -1:].astype(np.float32), None, obs.task)
        return self._last

    def goal_holds(self) -> np.ndarray:
        """See Env."""
        return np.zeros(len(self._last), bool)

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        """See Env. Episodes that are not active cost nothing and keep their last picture."""
        h = actions.shape[1]
        active = np.asarray(active, bool)
        running = np.flatnonzero(active)
        frames = {camera: rows.repeat(h, 1) for camera, rows in self._last.frames.items()}
        state = self._last.state.repeat(h, 1)
        for i in range(0, h, self.world_model.chunk) if len(running) else ():
            part = actions[running, i : i + self.world_model.chunk]
            obs, memory = self.world_model.predict(self._memory.take(running), part, [self._rngs[e] for e in running])
            self._memory = self._memory.put(running, memory)
            rows = slice(i, i + part.shape[1])
            state[running, rows] = obs.state
            for camera, values in obs.frames.items():
                frames[camera][running, rows] = values
        obs = Obs(frames, state, None, self._last.task)
        self._last = Obs({camera: rows[:, -1:] for camera, rows in frames.items()}, state[:, -1:], None, obs.task)
        nothing = np.zeros((len(active), h), bool)
        return Steps(obs, np.zeros((len(active), h), np.float32), nothing, nothing.copy(), np.repeat(active[:, None], h, 1))
