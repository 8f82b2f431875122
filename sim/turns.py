"""N episodes in this process, played in turn by one simulator: observations, pictures and exact rewinding for any simulator whose state
is a row of numbers. S numbers of proprioception, E of the simulator's truth, D of a saved state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from robowm.types import Obs, Steps

if TYPE_CHECKING:
    import mujoco

    from sim.render import Renderer


class Simulator(Protocol):
    """Plays one episode at a time."""

    sentence: str  # the task's text
    model: mujoco.MjModel
    data: mujoco.MjData
    goal_holds: bool  # in the state that the episode is in; after ``load`` only once refreshed

    def reset(self, seed: int) -> None:
        """Start the episode of ``seed``, whatever was played before."""
        ...

    def step(self, action: np.ndarray) -> None:
        """Apply ``action`` f32 [A] for one control step."""
        ...

    def observe(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the proprioception [S] and the simulator's truth [E]; after ``load`` only once refreshed."""
        ...

    def save(self) -> np.ndarray:
        """Return f64 [D], all that the future depends on."""
        ...

    def load(self, state: np.ndarray) -> None:
        """Go to a saved state f64 [D]; steps may follow at once."""
        ...

    def refresh(self) -> None:
        """Bring poses, cameras and ``goal_holds`` up to a loaded state, without touching anything that the next step depends on."""
        ...


class Turns:
    """See sim.batched.Batch. Episodes are rows of numbers, so N costs time, not memory.

    Args:
        simulator: plays them; none can influence another, as each is loaded before it is stepped.
        image_size: pictures are square, this many pixels.
        cameras: {name in ``Obs.frames``: name in the model}; none: nothing is rendered.
        groups: of geoms that are drawn.
    """

    def __init__(self, simulator: Simulator, image_size: int, cameras: Mapping[str, str], groups: Sequence[int]):
        self._simulator, self._size, self._cameras, self._groups = simulator, image_size, dict(cameras), tuple(groups)
        self._widths = [len(part) for part in simulator.observe()]  # S, E
        self._renderer: Renderer | None = None
        self._make_room(0)

    def reset(self, seeds: Sequence[int]) -> Obs:
        """See sim.batched.Batch."""
        self._make_room(len(seeds))
        for i, seed in enumerate(seeds):
            self._simulator.reset(int(seed))
            self._begin(i)
        return self._obs(self._shown[:, None], self._state[:, None], self._truth[:, None])

    def step(self, actions: np.ndarray, active: np.ndarray, render_rows: int | None) -> Steps:
        """See sim.batched.Batch."""
        n, horizon = actions.shape[:2]
        rows = horizon if render_rows is None else min(render_rows, horizon)
        state, truth, good = (np.repeat(now[:, None], horizon, 1) for now in (self._state, self._truth, self._good))
        shown = np.repeat(self._shown[:, None], rows, 1)
        for i in np.flatnonzero(active):
            self._simulator.load(self._saved[i])
            for k in range(horizon):
                self._simulator.step(actions[i, k])
                state[i, k], truth[i, k] = self._simulator.observe()
                good[i, k] = self._simulator.goal_holds
                if k >= horizon - rows:
                    shown[i, k - horizon + rows] = self._look()
            self._saved[i] = self._simulator.save()
        self._state, self._truth, self._good, self._shown = state[:, -1], truth[:, -1], good[:, -1], shown[:, -1]
        valid = np.broadcast_to(active[:, None], (n, horizon)).copy()
        return Steps(self._obs(shown, state, truth), good.astype(np.float32), good, np.zeros_like(good), valid)

    def goal_holds(self) -> np.ndarray:
        """See sim.batched.Batch."""
        return self._good.copy()

    def get_state(self) -> np.ndarray:
        """See sim.batched.Batch."""
        return self._saved.copy()

    def set_state(self, states: np.ndarray) -> Obs:
        """See sim.batched.Batch."""
        self._make_room(len(states))
        for i, state in enumerate(states):
            self._simulator.load(state)
            self._simulator.refresh()
            self._begin(i)
        return self._obs(self._shown[:, None], self._state[:, None], self._truth[:, None])

    def state_size(self) -> int:
        """See sim.batched.Batch."""
        return self._saved.shape[1]

    def close(self) -> None:
        """See sim.batched.Batch."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _make_room(self, count: int) -> None:
        self._saved = np.empty((count, len(self._simulator.save())))  # f64 [N, D]
        # What each episode showed last: [N, S], [N, E], whether its goal held, and its pictures [N, V, h, w, 3]
        self._state, self._truth = (np.empty((count, width), np.float32) for width in self._widths)
        self._good = np.empty(count, bool)
        self._shown = np.empty((count, len(self._cameras), self._size, self._size, 3), np.uint8)

    def _begin(self, i: int) -> None:
        """Make what the simulator has loaded episode ``i``."""
        self._saved[i] = self._simulator.save()
        self._state[i], self._truth[i] = self._simulator.observe()
        self._shown[i], self._good[i] = self._look(), self._simulator.goal_holds

    def _look(self) -> np.ndarray:
        """Return uint8 [V, h, w, 3] of the episode that the simulator is in."""
        if not self._cameras:
            return np.empty((0, self._size, self._size, 3), np.uint8)
        if self._renderer is None:
            from sim.render import Renderer

            names = list(self._cameras.values())
            self._renderer = Renderer(self._simulator.model, self._size, names, tiles=len(names), groups=self._groups)
        return self._renderer.render([self._simulator.data])[0]

    def _obs(self, shown: np.ndarray, state: np.ndarray, truth: np.ndarray) -> Obs:
        frames = {name: shown[:, :, v].copy() for v, name in enumerate(self._cameras)}
        return Obs(frames, state.copy(), truth.copy(), (self._simulator.sentence,) * len(state))
