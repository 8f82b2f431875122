"""What the simulators share: a batch of episodes, in one process or several, and the environment around it. D numbers of a saved state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from robowm.types import Obs, Steps
from sim.checks import check_actions, check_seeds, check_states


class Batch(Protocol):
    """At most n episodes side by side in one process; what it returns has a row for each running episode."""

    def reset(self, seeds: Sequence[int]) -> Obs:
        """Start one episode per seed; K = 1 rows."""
        ...

    def step(self, actions: np.ndarray, active: np.ndarray, render_rows: int | None) -> Steps:
        """Apply actions f32 [N, H, A] where ``active`` bool [N]; frames hold the last ``render_rows`` rows (None: all)."""
        ...

    def goal_holds(self) -> np.ndarray:
        """Return bool [N]."""
        ...

    def get_state(self) -> np.ndarray:
        """Return f64 [N, D], all that the future depends on."""
        ...

    def set_state(self, states: np.ndarray) -> Obs:
        """Restore f64 [N, D] and return the observation there."""
        ...

    def state_size(self) -> int:
        """Return D."""
        ...

    def close(self) -> None:
        """Free the renderer."""
        ...


class BatchedEnv:
    """An Env and Rewindable around ``batch``; a simulator adds its settings, ``fps`` and ``spec()``.

    Args:
        batch: plays the episodes.
        n: most episodes side by side.
        task_name: "tabletop/push".
        width: numbers of an action.
        render_rows: draw only the last so many rows of each chunk; None: all. May be set any time.
    """

    def __init__(self, batch: Batch, n: int, task_name: str, width: int, render_rows: int | None):
        self._batch, self._width = batch, width
        self.n, self.task_name, self.render_rows = n, task_name, render_rows
        self._running = 0  # episodes since the last reset

    def reset(self, seeds: Sequence[int]) -> Obs:
        """See Env."""
        check_seeds(self.task_name, seeds, self.n)
        self._running = len(seeds)
        return self._batch.reset(seeds)

    def goal_holds(self) -> np.ndarray:
        """See Env."""
        return self._batch.goal_holds()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        """See Env."""
        return self._batch.step(*check_actions(self.task_name, actions, active, self._running, self._width), self.render_rows)

    def get_state(self) -> np.ndarray:
        """See Rewindable: f64 [N, D], everything the future depends on."""
        return self._batch.get_state()

    def set_state(self, states: np.ndarray) -> Obs:
        """See Rewindable."""
        states = check_states(self.task_name, states, self.n, self._batch.state_size())
        self._running = len(states)
        return self._batch.set_state(states)

    def close(self) -> None:
        """Free renderers and end worker processes."""
        self._batch.close()
