"""Policies for robosuite: scripted experts, and smooth motions that do not look at the object. None keeps state of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robowm.types import Obs
from sim.checks import truth_of
from sim.experts import OpenLoop
from sim.experts.expert import ExpertMemory
from sim.experts.noise import smooth
from sim.experts.waypoints import Progress, Script, follow
from sim.robosuite.hand import action_to, pose_of, tilted_pose_of
from sim.robosuite.scripts import SCRIPTS
from sim.robosuite.tasks import load_task

LEAD = np.array([0.05, 0.05, 0.05, 0.4, 0.4])  # metres and radians (yaw, tilt): how far a target leads the measured pose at speed 1
AREAS = {  # of each arm: least and most x, y, z in metres and yaw in radians of the waypoints of RobosuiteOpenLoop
    "lift": [((-0.10, -0.10, 0.815, -0.8), (0.10, 0.10, 0.95, 0.8))],
    "can": [((0.00, -0.40, 0.85, -0.8), (0.20, -0.10, 1.00, 0.8))],
    "square": [((-0.16, 0.08, 0.835, -0.8), (-0.02, 0.27, 0.98, 0.8))],
    "transport": [((0.05, -0.55, 0.975, 0.8), (0.30, -0.35, 1.15, 2.3)), ((-0.25, 0.40, 0.85, -2.3), (-0.15, 0.50, 1.10, -0.8))],
    "tool_hang": [((-0.20, -0.30, 0.87, -0.8), (0.10, 0.00, 1.05, 0.8))],
}


class RobosuiteExpert:
    """The scripted policy of a task, one script an arm. Satisfies ``robowm.protocols.Policy``; reads ``obs.environment_state``.

    Measured with absolute actions, start seeds 50,000 to 50,099, without noise: lift 100 of 100 in 27 control steps (median), can 100 in
    113, square 98 in 118, tool_hang 100 in 362. With noise 0.03, 12 other starts: lift 5, can 8,
    square 0. With 0.005, tool_hang 13 of the 16 starts from 53,000 on. Of transport only a handful of starts has been played, see LOG.md.

    Args:
        task: "lift", "can", "square", "transport" or "tool_hang".
        noise: standard deviation in metres of a smooth disturbance added to the targets sent (yaw: 10x as many radians). The script sees
            where it went and corrects: demonstrations are narrow at 0, and wider and with recoveries above.
        action_kind: of the environment.
    """

    def __init__(self, task: str, noise: float = 0.0, action_kind: str = "absolute"):
        load_task(task)
        self._scripts, self._noise, self._kind = SCRIPTS[task], noise, action_kind
        self.name = f"sim.robosuite.{task}(noise={noise:g}, {action_kind})"

    def start(self, n: int) -> tuple[ExpertMemory, ...]:
        """See Policy; one memory for each arm."""
        return tuple(ExpertMemory(Progress(np.zeros(n, int), np.zeros(n, int)), np.zeros((n, 4))) for _ in self._scripts)

    def act(
        self, obs: Obs, memory: tuple[ExpertMemory, ...], rngs: Sequence[np.random.Generator]
    ) -> tuple[np.ndarray, tuple[ExpertMemory, ...]]:
        """See Policy; H = 1."""
        hands = np.split(obs.state[:, -1], len(self._scripts), axis=-1)
        poses = [tilted_pose_of(seen) if script.tilted else pose_of(seen) for script, seen in zip(self._scripts, hands, strict=True)]
        truth = truth_of(obs, self.name).astype(float)
        actions, later = [], []
        for arm, (script, seen, pose) in enumerate(zip(self._scripts, hands, poses, strict=True)):
            known = np.concatenate([truth, *poses[:arm], *poses[arm + 1 :]], 1)
            wanted, remembered = self._target(script, pose, known, memory[arm], rngs)
            actions.append(action_to(wanted, seen, self._kind))
            later.append(remembered)
        return np.concatenate(actions, 1)[:, None], tuple(later)

    def _target(
        self, script: Script, pose: np.ndarray, truth: np.ndarray, memory: ExpertMemory, rngs: Sequence[np.random.Generator]
    ) -> tuple[np.ndarray, ExpertMemory]:
        """Return the pose, with the gripper, to ask of one arm next, and its memory."""
        progress, wanted = follow(script, pose, truth, memory.progress)
        speed, gripper, felt = (
            np.array([getattr(phase, name) for phase in script.phases])[progress.phase, None] for name in ("speed", "gripper", "noise")
        )
        now, lead = pose[:, :-1], LEAD[: wanted.shape[1]] * speed
        target = now + (wanted - now).clip(-lead, lead)
        memory = replace(memory, progress=progress)
        if self._noise:
            noise, disturbance = smooth(memory.disturbance, rngs, 1, self._noise)
            target[:, :4] += felt * noise[:, 0]
            memory = ExpertMemory(progress, disturbance)
        return np.concatenate([target, gripper], 1), memory


class RobosuiteOpenLoop:
    """Moves smoothly between random places that have nothing to do with the objects: an action set that does not leak the state.

    The path starts from the first pose and looks at nothing afterwards. The gripper opens and closes now and then.

    Args:
        task: says where the waypoints lie: over where the task's objects begin, down to where they are touched.
        action_kind: of the environment. Deltas lead to the path from where the hand is.
    """

    def __init__(self, task: str, action_kind: str = "absolute"):
        load_task(task)
        self._paths, self._kind = [OpenLoop(low=low, high=high) for low, high in AREAS[task]], action_kind
        self.name = f"sim.robosuite.RobosuiteOpenLoop({task}, {action_kind})"

    def start(self, n: int) -> list:
        """See Policy; memory is each arm's path."""
        return [path.start(n) for path in self._paths]

    def act(self, obs: Obs, memory: list, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, list]:
        """See Policy; H = 1."""
        actions, later = [], []
        for path, way, seen in zip(self._paths, memory, np.split(obs.state[:, -1], len(self._paths), axis=-1), strict=True):
            pose, way = path.act(Obs({}, pose_of(seen)[:, None], None, obs.task), way, rngs)
            actions.append(action_to(pose[:, 0].astype(float), seen, self._kind))
            later.append(way)
        return np.concatenate(actions, 1)[:, None], later
