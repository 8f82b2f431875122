"""Somebody who watches a policy on the tabletop: does the task, sees how far the goal is, and brings the hand back."""

from __future__ import annotations

import numpy as np

from robowm.protocols import Policy
from robowm.types import Obs
from sim.checks import truth_of
from sim.experts.waypoints import LEAD
from sim.tabletop.task import target_distance
from sim.tabletop.tasks import load_task


class TabletopPerson:
    """Satisfies ``robowm.habc.takeover.Person``; reads ``obs.environment_state``.

    Args:
        task: file name in sim/tabletop/tasks.
        policy: how the task is done, a Policy of one action a call: the task's script, or somebody who hesitates over it.
    """

    def __init__(self, task: str, policy: Policy):
        self.policy, self._task = policy, load_task(task)
        self.name = f"sim.experts.TabletopPerson({task}, {policy.name})"

    def way(self, obs: Obs) -> np.ndarray:
        """Return metres [N] from hand to object and from object to target, 0 where the goal holds."""
        state, truth = obs.state[:, -1].astype(float), truth_of(obs, self.name).astype(float)
        reach = np.linalg.norm(truth[:, :3] - state[:, :3], axis=1)
        return np.where(self._task.holds(state, truth), 0.0, reach + target_distance(truth))

    def hand(self, state: np.ndarray) -> np.ndarray:
        """Return the pinch point [..., 3]."""
        return state[..., :3].astype(float)

    def back(self, obs: Obs, state: np.ndarray) -> np.ndarray:
        """Return targets [N, 5] that lead the hand towards the pose ``state`` [N, 5]; the gripper opens or closes as it was there."""
        now = obs.state[:, -1, :4]
        move = np.clip(state[:, :4] - now, -LEAD, LEAD)
        return np.concatenate([now + move, (state[:, 4:] > 0.5).astype(np.float32)], 1).astype(np.float32)
