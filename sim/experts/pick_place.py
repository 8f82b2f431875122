"""Pick the cube up and put it into the tray."""

from __future__ import annotations

import numpy as np

from sim.experts.waypoints import Phase, Script, fold
from sim.tabletop.task import object_yaw, target_distance

HIGH, GRASP, DROP = 0.080, 0.016, 0.026  # heights of the pinch point in metres

PHASES = (
    Phase("above", gripper=0, tolerance=0.012),
    Phase("down", gripper=0, tolerance=0.006, noise=0.5),
    Phase("grasp", gripper=1, tolerance=0.02, dwell=2),
    Phase("lift", gripper=1, tolerance=0.02),
    Phase("carry", gripper=1, tolerance=0.010),
    Phase("lower", gripper=1, tolerance=0.008),
    Phase("release", gripper=0, tolerance=0.03, dwell=2),
    Phase("leave", gripper=0),
)
_GRASP, _LIFT, _RELEASE, _LEAVE = 2, 3, 6, 7


def _poses(state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    yaw = fold(object_yaw(truth), np.pi / 2)  # a cube looks the same after a quarter turn
    place = truth[:, 7:9] - (truth[:, :2] - state[:, :2])  # where the hand has to be for the cube to be over the tray

    def pose(xy, z, yaw):
        return np.column_stack([xy, np.full(len(xy), z), yaw])

    above, down = pose(truth[:, :2], HIGH, yaw), pose(truth[:, :2], GRASP, yaw)
    carry, lower, stay = pose(place, HIGH, 0 * yaw), pose(place, DROP, 0 * yaw), state[:, :4]
    leave = pose(state[:, :2], HIGH, 0 * yaw)
    return np.stack([above, down, down, pose(state[:, :2], HIGH, state[:, 3]), carry, lower, stay, leave])


def _resume(phase: np.ndarray, state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    away = np.linalg.norm(truth[:, :2] - state[:, :2], axis=1)
    lost = (phase >= _LIFT) & (phase < _RELEASE) & (np.linalg.norm(truth[:, :3] - state[:, :3], axis=1) > 0.03)
    missed = ((phase == 1) | (phase == _GRASP)) & (away > 0.025)
    undone = (phase == _LEAVE) & (state[:, 2] > HIGH - 0.015) & (target_distance(truth) > 0.022)
    return np.where(lost | missed | undone, 0, phase)


SCRIPT = Script(PHASES, _poses, _resume)
