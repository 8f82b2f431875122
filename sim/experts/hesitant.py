"""Hesitant: another policy that now and then stops or goes astray, for demonstrations that leave something to improve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robowm.errors import UserError
from robowm.protocols import Policy
from robowm.types import Obs

LENGTH = (3, 8)  # fewest and most steps of a lapse


@dataclass(frozen=True)
class Lapses:
    """What N episodes are in the middle of."""

    left: np.ndarray  # int [N], steps of the lapse that are still to come, 0: none
    drift: np.ndarray  # [N, 3], where the hand goes meanwhile, per step; nought in a pause


def held_pose(obs: Obs) -> np.ndarray:
    """Return the first three numbers [N, 3] of an action that stands still where actions are target poses: the hand's own place."""
    return obs.state[:, -1, :3]


def no_move(obs: Obs) -> np.ndarray:
    """Return them where actions are velocities: nought."""
    return np.zeros((len(obs), 3))


class Hesitant:
    """Pauses and detours of 3 to 8 steps, begun at random; everything but x, y and z is left to the other policy.

    Args:
        policy: any policy of one action a call whose actions begin with x, y and z.
        rest: what x, y and z stand still at, ``held_pose`` or ``no_move``.
        pause: chance a step to stop.
        detour: chance a step to go astray, in a random direction, upwards rather than down.
        speed: how far a step of a detour goes, in the units of x, y and z.
    """

    def __init__(self, policy: Policy, rest: Callable[[Obs], np.ndarray], pause: float = 0.03, detour: float = 0.03, speed: float = 0.012):
        if not (pause >= 0 and detour >= 0 and pause + detour <= 1 and speed >= 0):
            raise UserError(f"pause={pause}, detour={detour}, speed={speed}; chances lie in [0, 1] together, speed is at least 0")
        self._policy, self._rest, self._pause, self._detour, self._speed = policy, rest, pause, detour, speed
        self.name = f"sim.experts.Hesitant({policy.name}, pause={pause:g}, detour={detour:g}, speed={speed:g})"

    def start(self, n: int) -> tuple[Any, Lapses]:
        """See Policy."""
        return self._policy.start(n), Lapses(np.zeros(n, int), np.zeros((n, 3)))

    def act(self, obs: Obs, memory: tuple, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, tuple]:
        """See Policy; H = 1."""
        inner, lapses = memory
        actions, inner = self._policy.act(obs, inner, rngs)
        lapses = self._next(lapses, rngs)
        actions = actions.astype(np.float32, copy=True)
        if (away := lapses.left > 0).any():
            actions[away, 0, :3] = (self._rest(obs) + lapses.drift)[away]
        return actions, (inner, lapses)

    def _next(self, lapses: Lapses, rngs: Sequence[np.random.Generator]) -> Lapses:
        left, drift = np.maximum(lapses.left - 1, 0), lapses.drift.copy()
        for i, rng in enumerate(rngs):
            chance = rng.random()
            if left[i] or chance >= self._pause + self._detour:
                continue
            left[i] = rng.integers(LENGTH[0], LENGTH[1] + 1)
            way = rng.standard_normal(3)
            way[2] = abs(way[2])
            drift[i] = 0.0 if chance < self._pause else self._speed * way / np.linalg.norm(way)
        return Lapses(left, drift)
