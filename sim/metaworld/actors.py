"""Policies for Meta-World: its scripted experts, and smooth motions that do not look at the object. None keeps state of its own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from robowm.types import Obs
from sim.checks import truth_of
from sim.experts import OpenLoop
from sim.experts.noise import smooth
from sim.metaworld.tasks import OBSERVATION, metaworld, task_name

REACH = 0.01  # metres that an action of 1 moves the set-point per simulation step
LOW, HIGH = (-0.20, 0.50, 0.06), (0.20, 0.88, 0.25)  # metres: where the waypoints of MetaworldOpenLoop lie


class MetaworldExpert:
    """Meta-World's scripted policy of a task. Satisfies ``robowm.protocols.Policy``; reads ``obs.environment_state``.

    Measured at repeat=4 without noise: 50 of 50 starts in each of drawer_open, drawer_close, button_press_topdown, push, pick_place and
    door_open, in 13 to 22 control steps (median). Of the other 44 tasks, 8 starts each, five suffer from the lower rate: bin_picking 1,
    handle_pull_side 3, basketball 5, lever_pull 6 and push_back 6 of 8 (repeat=1: 8, 8, 7, 8, 6); the rest reached 7 or 8.

    Args:
        task: as in MetaworldEnv.
        noise: standard deviation of a smooth disturbance of x, y and z, in units of the action (1 = full speed). The script sees where it
            went and corrects, so noisy demonstrations hold recoveries.
    """

    def __init__(self, task: str, noise: float = 0.0):
        self._script = metaworld("policies").ENV_POLICY_MAP[f"{task_name(task)}-v3"]()
        self._noise = noise
        self.name = f"sim.metaworld.{task_name(task)}(noise={noise:g})"

    def start(self, n: int) -> np.ndarray:
        """See Policy; memory is the last disturbance [N, 4]."""
        return np.zeros((n, 4))

    def act(self, obs: Obs, memory: np.ndarray, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, np.ndarray]:
        """See Policy; H = 1."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Constant")  # a script that asks for more than full speed gets full speed
            # A copy for each: some scripts write into what they see.
            wanted = np.array([self._script.get_action(truth.copy()) for truth in truth_of(obs, self.name)[:, :OBSERVATION]])
        if self._noise:
            noise, memory = smooth(memory, rngs, 1, self._noise)
            wanted[:, :3] = wanted[:, :3].clip(-1, 1) + noise[:, 0, :3]
        return wanted.clip(-1, 1).astype(np.float32)[:, None], memory


class MetaworldOpenLoop:
    """Moves smoothly between random places that have nothing to do with the object: an action set that does not leak the state.

    Only the first pose is looked at, to start from it. The gripper opens and closes now and then.

    Args:
        repeat: of the environment; it says how far an action moves.
    """

    name = "sim.metaworld.MetaworldOpenLoop"

    def __init__(self, repeat: int):
        self._path, self._step = OpenLoop(low=LOW, high=HIGH), REACH * repeat

    def start(self, n: int) -> tuple[list, np.ndarray | None]:
        """See Policy; memory is the path and the set-point [N, 3]."""
        return self._path.start(n), None

    def act(self, obs: Obs, memory: tuple, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, tuple]:
        """See Policy; H = 1."""
        way, hand = memory
        if hand is None:
            hand = obs.state[:, -1, :3].astype(float)
        pose, way = self._path.act(obs, way, rngs)
        move = ((pose[:, 0, :3] - hand) / self._step).clip(-1, 1)  # what is too far for one action is caught up by the next
        gripper = 2 * pose[:, 0, 3:] - 1
        return np.concatenate([move, gripper], 1).astype(np.float32)[:, None], (way, hand + move * self._step)
