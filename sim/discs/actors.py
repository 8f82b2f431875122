"""Policies for the discs: one that goes for the puck, one that does not look at it. None keeps state of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robowm.types import Obs
from sim.discs.env import AGENT, PUCK, TOP_SPEED

MEMORY = 0.9  # correlation of the wandering from one step to the next


class Chase:
    """Goes behind the puck and pushes it to the right, looking at simulator truth; ``noise`` (squares a second) disturbs it smoothly."""

    name = "sim.discs.Chase"

    def __init__(self, noise: float = 0.3):
        self._noise = noise

    def start(self, n: int) -> np.ndarray:
        """See Policy; memory is the last disturbance."""
        return np.zeros((n, 2))

    def act(self, obs: Obs, memory: np.ndarray, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, np.ndarray]:
        """See Policy."""
        truth = obs.environment_state[:, -1]
        agent, puck = truth[:, :2], truth[:, 2:4]
        behind = puck - [AGENT + PUCK + 0.03, 0.0]
        lined_up = (np.abs(agent[:, 1] - puck[:, 1]) < 0.05) & (agent[:, 0] < puck[:, 0])
        target = np.where(lined_up[:, None], puck, behind)
        noise = _wander(memory, rngs, self._noise)
        action = np.clip(4 * (target - agent), -TOP_SPEED, TOP_SPEED) + noise
        return action[:, None].astype(np.float32), noise


class Wander:
    """Smooth random velocities that have nothing to do with the puck: actions that leak nothing of it."""

    name = "sim.discs.Wander"

    def __init__(self, speed: float = 0.8):
        self._speed = speed

    def start(self, n: int) -> np.ndarray:
        """See Policy; memory is the last velocity."""
        return np.zeros((n, 2))

    def act(self, obs: Obs, memory: np.ndarray, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, np.ndarray]:
        """See Policy."""
        velocity = _wander(memory, rngs, self._speed)
        return velocity[:, None].astype(np.float32), velocity


def _wander(last: np.ndarray, rngs: Sequence[np.random.Generator], scale: float) -> np.ndarray:
    """Continue first-order autoregressive noise of deviation ``scale`` from ``last`` [N, 2]."""
    return MEMORY * last + scale * np.sqrt(1 - MEMORY**2) * np.stack([rng.standard_normal(2) for rng in rngs])
