"""Pick the peg up near its top, turn it to the socket's yaw, align above the socket and push it in."""

from __future__ import annotations

import numpy as np

from sim.experts.waypoints import Phase, Script, fold
from sim.tabletop.task import object_upright, object_yaw, target_distance
from sim.tabletop.tasks.insert import DEPTH, HALF_HEIGHT

GRIP = HALF_HEIGHT + 0.014  # height of the pinch point over a standing peg's foot
HIGH = 0.105
OVER = DEPTH + 0.012  # the foot travels this high

PHASES = (
    Phase("above", gripper=0, tolerance=0.012),
    Phase("down", gripper=0, tolerance=0.006, noise=0.5),
    Phase("grasp", gripper=1, tolerance=0.02, dwell=2),
    Phase("lift", gripper=1, tolerance=0.02),
    Phase("carry", gripper=1, tolerance=0.010),
    Phase("align", gripper=1, tolerance=0.003, speed=0.7, noise=0.3),
    Phase("insert", gripper=1, tolerance=0.004, speed=0.7, noise=0.3),
    Phase("release", gripper=0, tolerance=0.03, dwell=2),
    Phase("leave", gripper=0),
)
_GRASP, _LIFT, _CARRY, _ALIGN, _INSERT, _RELEASE, _LEAVE = range(2, 9)


def _poses(state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    quarter = np.pi / 2  # the peg looks the same after a quarter turn
    yaw = fold(object_yaw(truth), quarter)
    place = truth[:, 7:9] - (truth[:, :2] - state[:, :2])  # where the hand has to be for the peg to be over the socket
    turn = state[:, 3] + fold(truth[:, 9] - object_yaw(truth), quarter)  # what turns the peg to the socket
    grip = state[:, 2] - (truth[:, 2] - HALF_HEIGHT)  # height of the pinch point over the peg's foot

    def pose(xy, z, yaw):
        return np.column_stack([xy, np.broadcast_to(z, len(xy)), yaw])

    above, down = pose(truth[:, :2], HIGH, yaw), pose(truth[:, :2], GRIP, yaw)
    lift, carry = pose(state[:, :2], OVER + grip, state[:, 3]), pose(place, OVER + grip, turn)
    stay, leave = state[:, :4], pose(state[:, :2], HIGH, state[:, 3])
    return np.stack([above, down, down, lift, carry, carry, pose(place, grip, turn), stay, leave])


def _resume(phase: np.ndarray, state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    away = np.linalg.norm(truth[:, :2] - state[:, :2], axis=1)
    lost = (phase >= _LIFT) & (phase < _RELEASE) & ((away > 0.02) | (object_upright(truth) < 0.9))
    missed = ((phase == 1) | (phase == _GRASP)) & (away > 0.02)
    apart = target_distance(truth) > 0.006
    jammed = (phase == _INSERT) & apart & (truth[:, 2] - HALF_HEIGHT > DEPTH - 0.004)
    undone = (phase == _LEAVE) & (state[:, 2] > HIGH - 0.015) & ((truth[:, 2] > HALF_HEIGHT + 0.006) | (target_distance(truth) > 0.012))
    return np.where(lost | missed | undone, 0, np.where(jammed, _ALIGN, phase))


SCRIPT = Script(PHASES, _poses, _resume)
