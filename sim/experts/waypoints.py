"""A closed-loop waypoint follower: an expert is a list of phases, each with a pose to reach, and a rule for starting over after a slip.

An expert looks at simulator truth (``obs.environment_state``) and sends the same absolute targets that a cloned policy has to send, so a
demonstration holds nothing that a policy could not produce from pictures and proprioception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LEAD = np.array([0.012, 0.012, 0.012, 0.15])  # metres and radians: how far a target leads the measured pose at speed 1
FOLLOWED = 0.8  # share of the lead that the hand has covered one step later; used to plan a chunk ahead
HELD_FROM = 0.03  # metres between object and pinch point below which a closed gripper is taken to hold it


@dataclass(frozen=True)
class Phase:
    """Move to a pose with the gripper at ``gripper``; done when within ``tolerance`` for more than ``dwell`` steps."""

    name: str
    gripper: float
    tolerance: float = 0.01  # metres; yaw: 10x as many radians
    dwell: int = 0
    speed: float = 1.0
    noise: float = 1.0  # share of the expert's disturbance felt here: fine work is done with a steadier hand


@dataclass(frozen=True)
class Script:
    """One task's expert.

    ``poses`` maps state [N, 5] and environment state [N, 15] to the hand poses [P, N, 4] that the P phases want; ``resume`` maps phase
    int [N], state and environment state to the phase to go on with (an earlier one after a slip). Where ``tilted``, poses have a fifth
    number, an angle in radians that comes after yaw, in states too.
    """

    phases: tuple[Phase, ...]
    poses: Callable[[np.ndarray, np.ndarray], np.ndarray]
    resume: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    tilted: bool = False


@dataclass(frozen=True)
class Progress:
    """Where N episodes are in their script."""

    phase: np.ndarray  # int [N]
    waited: np.ndarray  # int [N], steps spent within tolerance


def plan(script: Script, state: np.ndarray, truth: np.ndarray, progress: Progress, chunk: int) -> tuple[np.ndarray, Progress]:
    """Return ``chunk`` absolute targets f64 [N, H, 5] from state [N, 5] and environment state [N, 15], and the new progress.

    The first is closed-loop; the others go on from where the hand and a held object are expected to be by then.
    """
    state, truth = state.astype(float), truth.astype(float)
    actions = np.empty((len(state), chunk, 5))
    for k in range(chunk):
        progress, pose = follow(script, state, truth, progress)
        speed = np.array([phase.speed for phase in script.phases])[progress.phase, None]
        gripper = np.array([phase.gripper for phase in script.phases])[progress.phase]
        move = np.clip(pose - state[:, :4], -LEAD * speed, LEAD * speed)
        actions[:, k] = np.concatenate([state[:, :4] + move, gripper[:, None]], 1)
        state, truth = _expect(state, truth, actions[:, k])
    return actions, progress


def follow(script: Script, state: np.ndarray, truth: np.ndarray, progress: Progress) -> tuple[Progress, np.ndarray]:
    """Advance each episode's phase where its pose is reached; return the pose [N, 4 or 5] to move to."""
    rows = np.arange(len(state))
    phase = script.resume(progress.phase, state, truth)
    waited = np.where(phase == progress.phase, progress.waited, 0)
    poses = script.poses(state, truth)
    tolerance = np.array([p.tolerance for p in script.phases])[phase]
    dwell = np.array([p.dwell for p in script.phases])[phase]
    error = np.abs(state[:, : poses.shape[-1]] - poses[phase, rows])
    reached = (error[:, :3].max(1) < tolerance) & (error[:, 3:].max(1) < 10 * tolerance)
    waited = np.where(reached, waited + 1, 0)
    advance = (waited > dwell) & (phase < len(script.phases) - 1)
    phase = np.where(advance, phase + 1, phase)
    return Progress(phase, np.where(advance, 0, waited)), poses[phase, rows]


def _expect(state: np.ndarray, truth: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Guess hand and object one step later: the hand covers most of its lead, a held object moves along."""
    held = (action[:, 4] > 0.5) & (np.linalg.norm(truth[:, :3] - state[:, :3], axis=1) < HELD_FROM)
    later = np.concatenate([state[:, :4] + FOLLOWED * (action[:, :4] - state[:, :4]), action[:, 4:]], 1)
    move = np.where(held[:, None], later - state, 0)
    moved = truth.copy()
    moved[:, :3] += move[:, :3]
    cos, sin = np.cos(move[:, 3] / 2), np.sin(move[:, 3] / 2)
    w, x, y, z = truth[:, 3:7].T
    moved[:, 3:7] = np.column_stack([cos * w - sin * z, cos * x - sin * y, cos * y + sin * x, cos * z + sin * w])
    return later, moved


def fold(angle: np.ndarray, period: float) -> np.ndarray:
    """Return ``angle`` shifted by multiples of ``period`` into [-period / 2, period / 2)."""
    return (angle + period / 2) % period - period / 2
