"""ScriptedExpert: a task's script behind the Policy protocol, with smooth noise that it corrects as it goes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robowm.errors import UserError
from robowm.types import Obs
from sim.checks import truth_of
from sim.experts.noise import smooth
from sim.experts.waypoints import Progress, Script, plan


@dataclass(frozen=True)
class ExpertMemory:
    """Progress through the script and the current disturbance of N episodes."""

    progress: Progress
    disturbance: np.ndarray  # [N, 4]


class ScriptedExpert:
    """Follows the script of a task. Satisfies ``robowm.protocols.Policy``; reads ``obs.environment_state``.

    Args:
        task: file name in sim/experts, or the import path of a module that defines ``SCRIPT``.
        noise: standard deviation in metres of a smooth disturbance added to the targets sent (yaw: 10x as many radians). The expert sees
            where it went and corrects, so noisy demonstrations hold recoveries.
        chunk: H, targets per call; only the first is closed-loop.
    """

    def __init__(self, task: str = "pick_place", noise: float = 0.0, chunk: int = 1):
        self._script = _load_script(task)
        self._noise, self._chunk = noise, chunk
        self.name = f"sim.experts.{task}(noise={noise:g}, chunk={chunk})"

    @property
    def closed_at_start(self) -> bool:
        """Whether the script begins with a closed gripper: it pushes and never grasps."""
        return self._script.phases[0].gripper > 0.5

    def start(self, n: int) -> ExpertMemory:
        """See Policy."""
        return ExpertMemory(Progress(np.zeros(n, int), np.zeros(n, int)), np.zeros((n, 4)))

    def act(self, obs: Obs, memory: ExpertMemory, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, ExpertMemory]:
        """See Policy."""
        actions, progress = plan(self._script, obs.state[:, -1], truth_of(obs, self.name), memory.progress, self._chunk)
        if not self._noise:
            return actions.astype(np.float32), replace(memory, progress=progress)
        noise, disturbance = smooth(memory.disturbance, rngs, self._chunk, self._noise)
        felt = np.array([phase.noise for phase in self._script.phases])[progress.phase]
        actions[:, :, :4] += felt[:, None, None] * noise
        return actions.astype(np.float32), ExpertMemory(progress, disturbance)


def _load_script(task: str) -> Script:
    path = task if "." in task else f"sim.experts.{task}"
    try:
        return importlib.import_module(path).SCRIPT
    except (ModuleNotFoundError, AttributeError) as error:
        raise UserError(
            f"no scripted expert for task {task!r}: {error}; expected a module {path} that defines SCRIPT, or another actor=..."
        ) from error
