"""Somebody who watches a policy on a Meta-World task, see robowm.habc.takeover.Person."""

from __future__ import annotations

import numpy as np

from robowm.protocols import Policy
from robowm.types import Obs
from sim.checks import truth_of
from sim.metaworld.actors import REACH

HAND, OBJECT, GOAL = slice(0, 3), slice(4, 7), slice(36, 39)  # in Meta-World's observation of 39 numbers
HALF_OPEN = 0.7  # of the fourth number of the proprioception, above it the gripper is open


class MetaworldPerson:
    """Satisfies ``robowm.habc.takeover.Person``; reads ``obs.environment_state``.

    Args:
        policy: how the task is done, a Policy of one action a call: the task's script, or somebody who hesitates over it.
        repeat: of the environment; it says how far an action moves.
    """

    def __init__(self, policy: Policy, repeat: int):
        self.policy, self._step = policy, REACH * repeat
        self.name = f"sim.metaworld.MetaworldPerson({policy.name})"

    def way(self, obs: Obs) -> np.ndarray:
        """Return metres [N] from hand to object and from object to goal; that the goal holds cannot be seen here."""
        truth = truth_of(obs, self.name).astype(float)
        reach, rest = truth[:, OBJECT] - truth[:, HAND], truth[:, GOAL] - truth[:, OBJECT]
        return np.linalg.norm(reach, axis=1) + np.linalg.norm(rest, axis=1)

    def hand(self, state: np.ndarray) -> np.ndarray:
        """Return the hand's place [..., 3]."""
        return state[..., :3].astype(float)

    def back(self, obs: Obs, state: np.ndarray) -> np.ndarray:
        """Return velocities [N, 4] that lead the hand towards its place in ``state`` [N, 4], the gripper as it was there."""
        move = ((state[:, :3] - obs.state[:, -1, :3]) / self._step).clip(-1, 1)
        return np.concatenate([move, np.where(state[:, 3:] > HALF_OPEN, -1.0, 1.0)], 1).astype(np.float32)
