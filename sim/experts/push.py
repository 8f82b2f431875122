"""Get behind the puck and push it towards the disc, turning the hand into the direction of travel."""

from __future__ import annotations

import numpy as np

from sim.experts.waypoints import Phase, Script, fold
from sim.tabletop.task import target_distance
from sim.tabletop.tasks.push import CLOSE

HIGH, LOW = 0.060, 0.018  # heights of the pinch point in metres
BEHIND = 0.055  # of the pinch point, from the puck's centre
TOUCH = 0.034  # where it pushes from: puck's radius + half the depth of the closed fingers

PHASES = (
    Phase("above", gripper=1, tolerance=0.015),
    Phase("down", gripper=1, tolerance=0.010),
    Phase("push", gripper=1, tolerance=0.0, speed=0.6, noise=0.5),
    Phase("back off", gripper=1, tolerance=0.012),
    Phase("leave", gripper=1),
)
_PUSH, _BACK_OFF, _LEAVE = 2, 3, 4


def _direction(truth: np.ndarray) -> np.ndarray:
    """Return unit vectors [N, 2] from puck to disc."""
    way = truth[:, 7:9] - truth[:, :2]
    return way / np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-6)


def _poses(state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    way = _direction(truth)
    yaw = fold(np.arctan2(way[:, 1], way[:, 0]) - np.pi / 2, np.pi)  # the fingers' backs face the puck

    def pose(xy, z, yaw):
        return np.column_stack([xy, np.full(len(xy), z), yaw])

    behind = truth[:, :2] - BEHIND * way
    sideways = state[:, :2] - truth[:, :2]
    sideways -= (sideways * way).sum(1, keepdims=True) * way  # off the line through puck and disc
    push = truth[:, 7:9] - TOUCH * way - 1.5 * sideways
    hand = state[:, :2] - truth[:, :2]
    away = hand / np.maximum(np.linalg.norm(hand, axis=1, keepdims=True), 1e-6)
    back, yaw_now = truth[:, :2] + BEHIND * away, state[:, 3]
    return np.stack(
        [
            pose(behind, HIGH, yaw),
            pose(behind, LOW, yaw),
            pose(push, LOW, yaw),
            pose(back, LOW, yaw_now),
            pose(state[:, :2], HIGH, yaw_now),
        ]
    )


def _resume(phase: np.ndarray, state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    distance, way, hand = target_distance(truth), _direction(truth), state[:, :2] - truth[:, :2]
    along = (hand * way).sum(1)  # negative: behind the puck
    across = np.abs(hand[:, 0] * way[:, 1] - hand[:, 1] * way[:, 0])
    pushing, there = phase == _PUSH, distance < 0.5 * CLOSE
    slipped = pushing & ~there & ((across > 0.020) | (along > -0.01) | (along < -0.08))
    undone = (phase == _LEAVE) & (state[:, 2] > HIGH - 0.015) & (distance > 0.9 * CLOSE)
    phase = np.where(slipped | (pushing & there), _BACK_OFF, phase)
    return np.where(undone, 0, phase)


SCRIPT = Script(PHASES, _poses, _resume)
