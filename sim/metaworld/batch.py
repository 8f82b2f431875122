"""N episodes of one Meta-World task in this process, played in turn by one simulator: observations, pictures and exact rewinding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from robowm.types import Obs, Steps
from sim.metaworld.simulator import EXTERNAL, WIDTH, Simulator
from sim.metaworld.tasks import SENTENCES

if TYPE_CHECKING:
    from sim.render import Renderer

CAMERAS = {"external": EXTERNAL, "wrist": "gripperPOV"}  # our names: Meta-World's
PROPRIOCEPTION = slice(0, 4)  # of an observation: hand x, y, z, opening


class Batch:
    """See sim.batched.Batch. ``repeat`` simulation steps of 1/80 s make one control step."""

    def __init__(self, task: str, image_size: int, cameras: Sequence[str], repeat: int):
        self._simulator = Simulator(task)
        self._sentence, self._size, self._cameras, self._repeat = SENTENCES[task], image_size, tuple(cameras), repeat
        self._states = np.empty((0, len(self._simulator.save())))  # f64 [N, D]
        self._seen = np.empty((0, WIDTH), np.float32)  # [N, 39], what each episode showed last
        self._good = np.empty(0, bool)  # [N], whether its goal held then
        self._shown = np.empty(0, np.uint8)  # [N, V, h, w, 3], its pictures then
        self._renderer: Renderer | None = None

    def reset(self, seeds: Sequence[int]) -> Obs:
        """See sim.batched.Batch."""
        self._make_room(len(seeds))
        for i, seed in enumerate(seeds):
            self._simulator.reset(int(seed))
            self._begin(i)
        return self._obs(self._shown[:, None], self._seen[:, None])

    def step(self, actions: np.ndarray, active: np.ndarray, render_rows: int | None) -> Steps:
        """See sim.batched.Batch."""
        n, horizon = actions.shape[:2]
        rows = horizon if render_rows is None else min(render_rows, horizon)
        seen = np.repeat(self._seen[:, None], horizon, 1)
        good = np.repeat(self._good[:, None], horizon, 1)
        shown = np.repeat(self._shown[:, None], rows, 1)
        for i in np.flatnonzero(active):
            self._simulator.load(self._states[i])
            for k in range(horizon):
                seen[i, k] = self._simulator.step(actions[i, k].clip(-1, 1), self._repeat)
                good[i, k] = self._simulator.goal_holds
                if k >= horizon - rows:
                    shown[i, k - horizon + rows] = self._look()
            self._states[i] = self._simulator.save()
        self._seen, self._good, self._shown = seen[:, -1], good[:, -1], shown[:, -1]
        valid = np.broadcast_to(active[:, None], (n, horizon)).copy()
        return Steps(self._obs(shown, seen), good.astype(np.float32), good, np.zeros_like(good), valid)

    def goal_holds(self) -> np.ndarray:
        """See sim.batched.Batch."""
        return self._good.copy()

    def get_state(self) -> np.ndarray:
        """See sim.batched.Batch."""
        return self._states.copy()

    def set_state(self, states: np.ndarray) -> Obs:
        """See sim.batched.Batch."""
        self._make_room(len(states))
        for i, state in enumerate(states):
            self._simulator.load(state)
            self._simulator.refresh()
            self._begin(i)
        return self._obs(self._shown[:, None], self._seen[:, None])

    def state_size(self) -> int:
        """See sim.batched.Batch."""
        return self._states.shape[1]

    def close(self) -> None:
        """See sim.batched.Batch."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _make_room(self, count: int) -> None:
        self._states = np.empty((count, self.state_size()))
        self._seen, self._good = np.empty((count, WIDTH), np.float32), np.empty(count, bool)
        self._shown = np.empty((count, len(self._cameras), self._size, self._size, 3), np.uint8)

    def _begin(self, i: int) -> None:
        """Make what the simulator has loaded episode ``i``."""
        self._states[i] = self._simulator.save()
        self._seen[i], self._shown[i] = self._simulator.observe(), self._look()
        self._good[i] = self._simulator.goal_holds

    def _look(self) -> np.ndarray:
        """Return uint8 [V, h, w, 3] of the episode that the simulator is in."""
        if not self._cameras:
            return np.empty((0, self._size, self._size, 3), np.uint8)
        if self._renderer is None:
            from sim.render import Renderer

            names = [CAMERAS[name] for name in self._cameras]
            self._renderer = Renderer(self._simulator.model, self._size, names, tiles=len(names))
        return self._renderer.render([self._simulator.data])[0]

    def _obs(self, shown: np.ndarray, seen: np.ndarray) -> Obs:
        frames = {name: shown[:, :, v].copy() for v, name in enumerate(self._cameras)}
        return Obs(frames, seen[..., PROPRIOCEPTION].copy(), seen.copy(), (self._sentence,) * len(seen))


def build(n: int, **settings) -> Batch:
    """Return a Batch: what a worker process starts from. Episodes are rows of numbers, so it makes room for ``n`` when they come."""
    return Batch(**settings)
