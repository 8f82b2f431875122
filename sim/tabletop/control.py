"""From an action to the hand's set-point: the workspace and the speed limit, as pure functions."""

from __future__ import annotations

import numpy as np

FPS = 10.0
FAR = 100.0  # metres; nothing gets there, and NaN does not compare
WORKSPACE = np.array([[-0.12, 0.12], [-0.12, 0.12], [0.014, 0.15], [-1.4, 1.4], [0.0, 1.0]])  # [A, 2] lowest and highest target
MAX_MOVE = np.array([0.05, 0.05, 0.05, 0.5, 1.0])  # [A] the set-point moves at most this far in one control step


def next_set_point(set_point: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return where the set-point [..., 5] goes in one control step when told to be at ``target`` [..., 5] (metres, radians, 0..1)."""
    target = np.clip(target, WORKSPACE[:, 0], WORKSPACE[:, 1])
    return set_point + np.clip(target - set_point, -MAX_MOVE, MAX_MOVE)


def absolute(set_point: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Return the target [..., 5] that a relative action means: x, y, z, yaw from the set-point on, the gripper as it is."""
    return np.concatenate([set_point[..., :4] + delta[..., :4], delta[..., 4:]], -1)
