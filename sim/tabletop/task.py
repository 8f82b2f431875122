"""What a tabletop task is: bodies, a distribution of start states, a success rule and a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

STATE_NAMES = ("x", "y", "z", "yaw", "gripper")  # of the hand, measured; gripper 0 = open .. 1 = closed
ACTION_NAMES = STATE_NAMES  # the same quantities as targets
ENVIRONMENT_STATE_NAMES = (  # like robomimic's object observation: also where things are from each other
    *("object_x", "object_y", "object_z", "object_qw", "object_qx", "object_qy", "object_qz"),
    *("target_x", "target_y", "target_yaw"),
    *("hand_to_object_x", "hand_to_object_y", "hand_to_object_z"),
    *("object_to_target_x", "object_to_target_y"),
)


@dataclass(frozen=True)
class Start:
    """A start state."""

    hand: np.ndarray  # [5], x, y, z, yaw, gripper
    object: np.ndarray  # [4], x, y, z, yaw
    target: np.ndarray  # [3], x, y, yaw


@dataclass(frozen=True)
class Task:
    """A task. ``holds`` maps state [..., 5] and environment state [..., 15] to bool [...]: the goal is a function of what is recorded."""

    name: str
    sentence: str
    bodies: str  # MJCF: a free body "object" and a mocap body "target"
    sample: Callable[[np.random.Generator, float], Start]  # (generator, start range: 1 = full, 0 = always the centre)
    holds: Callable[[np.ndarray, np.ndarray], np.ndarray]


def object_yaw(environment_state: np.ndarray) -> np.ndarray:
    """Return the object's heading [...] in radians from environment states [..., 15]."""
    w, x, y, z = np.moveaxis(environment_state[..., 3:7], -1, 0)
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def object_upright(environment_state: np.ndarray) -> np.ndarray:
    """Return the cosine [...] between the object's own z axis and the vertical."""
    x, y = environment_state[..., 4], environment_state[..., 5]
    return 1 - 2 * (x * x + y * y)


def object_flat(environment_state: np.ndarray) -> np.ndarray:
    """Return the largest cosine [...] between any of the object's axes, either way, and the vertical: 1 on any face of a box."""
    w, x, y, z = np.moveaxis(environment_state[..., 3:7], -1, 0)
    vertical = np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)
    return np.abs(vertical).max(-1)


def target_distance(environment_state: np.ndarray) -> np.ndarray:
    """Return the horizontal distance [...] between object and target in metres."""
    return np.linalg.norm(environment_state[..., :2] - environment_state[..., 7:9], axis=-1)


def uniform(rng: np.random.Generator, low, high, start_range: float) -> np.ndarray:
    """Draw from the box [low, high] shrunk around its centre by ``start_range``."""
    low, high = np.asarray(low, float), np.asarray(high, float)
    return (low + high) / 2 + (high - low) / 2 * start_range * rng.uniform(-1, 1, low.shape)
