"""Somebody who watches a policy on Lift, Can or Square, see robowm.habc.takeover.Person."""

from __future__ import annotations

import numpy as np

from robowm.errors import UserError
from robowm.protocols import Policy
from robowm.types import Obs
from sim.checks import truth_of
from sim.robosuite.actors import LEAD
from sim.robosuite.hand import action_to, pose_of
from sim.robosuite.scripts import BIN, PEG

OBJECT = {"lift": slice(0, 3), "can": slice(7, 10), "square": slice(7, 10)}  # where the object's place stands in the environment state
UP = 0.04  # metres above its start at which robosuite takes the cube for lifted
TABLE = 0.83  # metres: height of the cube's middle on the table


class RobosuitePerson:
    """Satisfies ``robowm.habc.takeover.Person``; reads ``obs.environment_state``.

    Args:
        task: "lift", "can" or "square".
        policy: how the task is done, a Policy of one action a call: the task's script, or somebody who hesitates over it.
        action_kind: of the environment.
    """

    def __init__(self, task: str, policy: Policy, action_kind: str = "absolute"):
        if task not in OBJECT:
            raise UserError(f"nobody watches robosuite/{task}: known: {', '.join(OBJECT)}")
        self.policy, self._task, self._kind = policy, task, action_kind
        self.name = f"sim.robosuite.RobosuitePerson({task}, {policy.name})"

    def way(self, obs: Obs) -> np.ndarray:
        """Return metres [N] from hand to object and from object to where it belongs; that the goal holds cannot be seen here."""
        thing = truth_of(obs, self.name).astype(float)[:, OBJECT[self._task]]
        if self._task == "lift":
            left = np.maximum(TABLE + UP - thing[:, 2], 0.0)
        else:
            left = np.linalg.norm(thing[:, :2] - (BIN if self._task == "can" else PEG), axis=1)
        return np.linalg.norm(thing - obs.state[:, -1, :3], axis=1) + left

    def hand(self, state: np.ndarray) -> np.ndarray:
        """Return the place between the fingers [..., 3]."""
        return state[..., :3].astype(float)

    def back(self, obs: Obs, state: np.ndarray) -> np.ndarray:
        """Return actions [N, A] that lead the hand towards its pose in ``state`` [N, 9], the gripper open or closed as it was there."""
        now, then = pose_of(obs.state[:, -1]), pose_of(state)
        move = (then[:, :4] - now[:, :4]).clip(-LEAD[:4], LEAD[:4])
        target = np.concatenate([now[:, :4] + move, (then[:, 4:] > 0.5).astype(float)], 1)
        return action_to(target, obs.state[:, -1], self._kind)
