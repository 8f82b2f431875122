"""Policies that serve as controls or as action sets: NeverMoves, OpenLoop, Perturbed and AsDelta. None keeps state of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robowm.protocols import Policy
from robowm.types import Obs
from sim.experts.noise import smooth
from sim.tabletop.control import next_set_point

LOW, HIGH = (-0.10, -0.10, 0.014, -0.6), (0.10, 0.10, 0.10, 0.6)  # where OpenLoop's waypoints lie on the tabletop
WAYPOINT_STEPS = (6, 14)  # fewest and most steps from one waypoint to the next
LOW_SHARE = 0.6  # of the waypoints at the height of objects, so that it touches them now and then


class NeverMoves:
    """Commands the pose it is in. Its success is the success that costs nothing: it has to be 0."""

    name = "sim.experts.NeverMoves"

    def __init__(self, chunk: int = 1):
        self._chunk = chunk

    def start(self, n: int) -> None:
        """See Policy."""
        return None

    def act(self, obs: Obs, memory: None, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, None]:
        """See Policy."""
        return np.repeat(obs.state[:, -1:], self._chunk, axis=1), None


@dataclass(frozen=True)
class _Way:
    """One episode's current stretch: from ``begin`` to ``end`` [A] in ``steps`` steps, ``done`` of them taken."""

    begin: np.ndarray
    end: np.ndarray
    steps: int
    done: int


class OpenLoop:
    """Moves smoothly between random poses that have nothing to do with the object: an action set that does not leak the state.

    Only the first pose is looked at, to start from it. The gripper, last of the A numbers of a pose, opens (0) and closes (1) now and then.

    Args:
        chunk: H, targets per call.
        low: least of a waypoint's other numbers [A - 1]; the third is a height.
        high: and most.
    """

    name = "sim.experts.OpenLoop"

    def __init__(self, chunk: int = 1, low: Sequence[float] = LOW, high: Sequence[float] = HIGH):
        self._chunk, self._low, self._high = chunk, np.array(low), np.array(high)

    def start(self, n: int) -> list[_Way | None]:
        """See Policy."""
        return [None] * n

    def act(self, obs: Obs, memory: list, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, list]:
        """See Policy."""
        actions, ways = [], []
        for way, pose, rng in zip(memory, obs.state[:, -1], rngs, strict=True):
            way = way or self._next_way(pose.astype(float), rng)
            rows = []
            for _ in range(self._chunk):
                if way.done == way.steps:
                    way = self._next_way(way.end, rng)
                way = _Way(way.begin, way.end, way.steps, way.done + 1)
                rows.append(_between(way))
            actions.append(rows)
            ways.append(way)
        return np.array(actions, np.float32), ways

    def _next_way(self, begin: np.ndarray, rng: np.random.Generator) -> _Way:
        end = np.append(rng.uniform(self._low, self._high), float(rng.random() < 0.5))
        if rng.random() < LOW_SHARE:
            end[2] = rng.uniform(self._low[2], self._low[2] + 0.015)
        return _Way(begin, end, int(rng.integers(WAYPOINT_STEPS[0], WAYPOINT_STEPS[1] + 1)), 0)


def _between(way: _Way) -> np.ndarray:
    """Return the minimum-jerk pose after ``done`` steps; the gripper switches at the beginning."""
    s = way.done / way.steps
    pose = way.begin + (way.end - way.begin) * s**3 * (10 - 15 * s + 6 * s * s)
    pose[-1] = way.end[-1]
    return pose


class Perturbed:
    """Another policy with smooth noise on its targets.

    Args:
        policy: any policy whose actions begin with x, y, z, yaw.
        noise: standard deviation in metres; yaw gets 10x as many radians.
    """

    def __init__(self, policy: Policy, noise: float = 0.008):
        self._policy, self._noise = policy, noise
        self.name = f"sim.experts.Perturbed({policy.name}, noise={noise:g})"

    def start(self, n: int) -> tuple[Any, np.ndarray]:
        """See Policy."""
        return self._policy.start(n), np.zeros((n, 4))

    def act(self, obs: Obs, memory: tuple, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, tuple]:
        """See Policy."""
        inner, last = memory
        actions, inner = self._policy.act(obs, inner, rngs)
        noise, last = smooth(last, rngs, actions.shape[1], self._noise)
        actions = actions.astype(np.float32, copy=True)
        actions[:, :, :4] += noise
        return actions, (inner, last)


class AsDelta:
    """A policy of absolute targets, for an environment with ``action_kind="delta"``: x, y, z, yaw become changes of the set-point.

    The set-point starts at the pose first seen and follows what was sent, clipped as the environment clips it.
    """

    def __init__(self, policy: Policy):
        self._policy = policy
        self.name = f"sim.experts.AsDelta({policy.name})"

    def start(self, n: int) -> tuple[Any, np.ndarray | None]:
        """See Policy."""
        return self._policy.start(n), None

    def act(self, obs: Obs, memory: tuple, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, tuple]:
        """See Policy."""
        inner, set_point = memory
        if set_point is None:
            set_point = obs.state[:, -1].astype(float)
        actions, inner = self._policy.act(obs, inner, rngs)
        deltas = actions.astype(np.float32, copy=True)
        for k in range(actions.shape[1]):
            deltas[:, k, :4] = actions[:, k, :4] - set_point[:, :4]
            set_point = next_set_point(set_point, actions[:, k].astype(float))
        return deltas, (inner, set_point)
