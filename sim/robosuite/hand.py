"""A hand that points straight down as five numbers, as scripts think of it, and the actions that bring it somewhere. N episodes.

A pose [N, 5] is x, y, z of the point between the fingers in metres, yaw in radians, and gripper (0 open, 1 closed). At yaw 0 the fingers
move along the world's y, as at the start of an episode; the arm's last joint allows about -2.1 to 3.6. A tilted pose [N, 6] has, after
yaw, the hand's turn in radians about the line along which the fingers move: 0 points down, a quarter turn forward, to world's x at yaw 0.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from sim.experts.waypoints import fold
from sim.robosuite.rotation import from_quaternion, to_six

GRIP_SITE = np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]])  # of the grip site's axes in the hand's: a quarter turn
OPEN = 0.08  # metres between the pads of an open gripper
MIDDLE = 0.7  # radians: the middle of the yaws that the arm can reach
FULL = np.array([0.05] * 3 + [0.5] * 3)  # metres and radians of a delta action of 1


def pose_of(state: np.ndarray) -> np.ndarray:
    """Return the pose f64 [N, 5] that the proprioception [N, 9] shows; a tilt is left out."""
    across = _rotation(state)[..., 0]  # along which the fingers move
    yaw = MIDDLE + fold(np.arctan2(across[:, 1], across[:, 0]) - np.pi / 2 - MIDDLE, 2 * np.pi)
    opening = (state[:, 7] - state[:, 8]).astype(float)
    return np.column_stack([state[:, :3].astype(float), yaw, 1 - opening / OPEN])


def tilted_pose_of(state: np.ndarray) -> np.ndarray:
    """Return the tilted pose f64 [N, 6] that the proprioception [N, 9] shows; fingers that do not move level are taken to."""
    pose = pose_of(state)
    ahead = _rotation(state)[..., 2]  # where the hand points
    tilt = np.arctan2(ahead[:, 0] * np.cos(pose[:, 3]) + ahead[:, 1] * np.sin(pose[:, 3]), -ahead[:, 2])
    return np.insert(pose, 4, tilt, axis=1)


def action_to(pose: np.ndarray, state: np.ndarray, action_kind: str) -> np.ndarray:
    """Return the action f32 [N, A] that asks for ``pose`` [N, 5 or 6] where the proprioception [N, 9] is now, see RobosuiteEnv."""
    turn = _pointing(pose[:, 3], pose[:, 4] if pose.shape[1] == 6 else np.zeros(len(pose)))
    gripper = 2 * pose[:, -1:] - 1
    if action_kind == "absolute":
        return np.concatenate([pose[:, :3], to_six(turn), gripper], 1).astype(np.float32)
    turned = Rotation.from_matrix(turn @ _rotation(state).swapaxes(1, 2)).as_rotvec()
    moved = np.concatenate([pose[:, :3] - state[:, :3], turned], 1) / FULL
    return np.concatenate([moved, gripper], 1).clip(-1, 1).astype(np.float32)


def _rotation(state: np.ndarray) -> np.ndarray:
    """Return the grip site's rotation [N, 3, 3]."""
    return from_quaternion(state[:, 3:7].astype(float)) @ GRIP_SITE


def _pointing(yaw: np.ndarray, tilt: np.ndarray) -> np.ndarray:
    """Return the grip site's rotation [N, 3, 3] at yaw and tilt [N]."""
    across = np.stack([np.cos(yaw + np.pi / 2), np.sin(yaw + np.pi / 2), np.zeros(len(yaw))], -1)
    ahead = np.stack([np.sin(tilt) * np.cos(yaw), np.sin(tilt) * np.sin(yaw), -np.cos(tilt)], -1)
    return np.stack([across, np.cross(ahead, across), ahead], -1)
