"""Orientations as actions: six numbers, the first two rows of a rotation matrix (Zhou et al. 2019, arXiv 1812.07035, as Diffusion Policy
orders them). Unlike angles and quaternions they have no jump, so averages and small errors stay meaningful."""

from __future__ import annotations

import numpy as np


def to_six(matrix: np.ndarray) -> np.ndarray:
    """Map rotation matrices [..., 3, 3] to [..., 6]."""
    return matrix[..., :2, :].reshape(*matrix.shape[:-2], 6)


def from_six(six: np.ndarray) -> np.ndarray:
    """Map [..., 6] to the nearest-by-Gram-Schmidt rotation matrices [..., 3, 3]: only the directions count, not the lengths.

    The first row keeps its direction, the second is made perpendicular to it. Rows of no length, or parallel ones, give no rotation:
    the result then holds whatever perpendicular rows are at hand, never NaN.
    """
    first = _unit(six[..., :3], np.array([1.0, 0.0, 0.0]))
    second = six[..., 3:] - (first * six[..., 3:]).sum(-1, keepdims=True) * first
    spare = np.cross(first, np.eye(3)[np.abs(first).argmin(-1)])
    second = _unit(second, spare / np.linalg.norm(spare, axis=-1, keepdims=True))
    return np.stack([first, second, np.cross(first, second)], -2)


def from_quaternion(quaternion: np.ndarray) -> np.ndarray:
    """Map quaternions (x, y, z, w) [..., 4] to rotation matrices [..., 3, 3]."""
    x, y, z, w = np.moveaxis(quaternion / np.linalg.norm(quaternion, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def _unit(rows: np.ndarray, spare: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.where(length > 1e-6, rows / np.maximum(length, 1e-6), spare)
