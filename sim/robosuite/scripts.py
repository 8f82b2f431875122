"""The scripts of Lift, Can and Square: phases, the poses they want and where to go on after a slip, see sim.experts.waypoints. ToolHang's
and Transport's are in tool_hang.py and transport.py.

``state`` is a pose [N, 5] of hand.py, ``truth`` the environment state [N, E]: robomimic's "object".
"""

from __future__ import annotations

import numpy as np

from sim.experts.waypoints import Phase, Script, fold
from sim.robosuite import tool_hang, transport

BIN = np.array([0.165, 0.355])  # metres: in the can's compartment; its middle, farther off, is where the stretched arm loses precision
BIN_FROM, BIN_TO = np.array([0.10, 0.28]), np.array([0.30, 0.53])  # corners of that compartment
PEG = np.array([0.23, 0.10])  # and where the square peg stands
PEG_TOP, NUT_HALF = 0.95, 0.010  # metres: height of the peg's end; half the nut's thickness
HANDLE = 0.057  # metres from the nut's centre to where its handle is held
ON_PEG = 0.85  # metres: height of the nut's centre at which it is let go
QUARTER = np.pi / 2
_GRASP, _LIFT = 2, 3


def _yaw(quaternion: np.ndarray) -> np.ndarray:
    """Return the turn about z [N] of quaternions (x, y, z, w) [N, 4]."""
    x, y, z, w = quaternion.T
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def _pose(xy: np.ndarray, z: np.ndarray | float, yaw: np.ndarray | float) -> np.ndarray:
    return np.column_stack([xy, np.broadcast_to(z, len(xy)), np.broadcast_to(yaw, len(xy))])


# ------------------------------------------------------------------ lift

LIFT = (
    Phase("above", gripper=0, tolerance=0.015),
    Phase("down", gripper=0, tolerance=0.008, noise=0.5),
    Phase("grasp", gripper=1, tolerance=0.03, dwell=4),
    Phase("lift", gripper=1),
)


def _lift_poses(state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    cube, yaw = truth[:, :3], fold(_yaw(truth[:, 3:7]), QUARTER)  # a cube looks the same after a quarter turn
    down = _pose(cube[:, :2], cube[:, 2], yaw)
    return np.stack([_pose(cube[:, :2], cube[:, 2] + 0.06, yaw), down, down, _pose(state[:, :2], 0.93, state[:, 3])])


def _lift_resume(phase: np.ndarray, state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    away = np.linalg.norm(truth[:, :2] - state[:, :2], axis=1)
    lost = (phase == _LIFT) & (np.linalg.norm(truth[:, :3] - state[:, :3], axis=1) > 0.04)
    missed = ((phase == 1) | (phase == _GRASP)) & (away > 0.03)
    return np.where(lost | missed, 0, phase)


# ------------------------------------------------------------------ can

CAN = (
    Phase("above", gripper=0, tolerance=0.015),
    Phase("down", gripper=0, tolerance=0.010, noise=0.5),
    Phase("grasp", gripper=1, tolerance=0.03, dwell=5),
    Phase("lift", gripper=1, tolerance=0.03),
    Phase("carry", gripper=1, tolerance=0.02),
    Phase("lower", gripper=1, tolerance=0.02),
    Phase("release", gripper=0, tolerance=0.03, dwell=4),
    Phase("leave", gripper=0),
)
CAN_HIGH = 1.05  # metres: of the hand, so that the can passes over the walls


def _can_poses(state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    can, grip = truth[:, 7:10], truth[:, 9] + 0.015
    place = BIN - (can[:, :2] - state[:, :2])  # where the hand has to be for the can to be over its compartment
    down, hand = _pose(can[:, :2], grip, 0), state[:, :2]
    held = state[:, 2] - can[:, 2]  # height of the hand over the can's middle
    above, lift, carry = _pose(can[:, :2], grip + 0.09, 0), _pose(hand, CAN_HIGH, 0), _pose(place, CAN_HIGH, 0)
    return np.stack([above, down, down, lift, carry, _pose(place, 0.87 + held, 0), _pose(hand, state[:, 2], 0), _pose(hand, CAN_HIGH, 0)])


def _can_resume(phase: np.ndarray, state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    can = truth[:, 7:10]
    away = np.linalg.norm(can[:, :2] - state[:, :2], axis=1)
    lost = (phase >= _LIFT) & (phase < 6) & (np.linalg.norm(can - state[:, :3], axis=1) > 0.06)
    missed = ((phase == 1) | (phase == _GRASP)) & (away > 0.035)
    outside = ((can[:, :2] < BIN_FROM) | (can[:, :2] > BIN_TO)).any(1)
    undone = (phase == 7) & (state[:, 2] > CAN_HIGH - 0.05) & outside
    return np.where(lost | missed | undone, 0, phase)


# ------------------------------------------------------------------ square

SQUARE = (
    Phase("above", gripper=0, tolerance=0.012),
    Phase("down", gripper=0, tolerance=0.007, noise=0.5),
    Phase("grasp", gripper=1, tolerance=0.03, dwell=5),
    Phase("lift", gripper=1, tolerance=0.02),
    Phase("carry", gripper=1, tolerance=0.008, noise=0.5),
    Phase("align", gripper=1, tolerance=0.004, dwell=2, speed=0.5, noise=0.3),
    Phase("insert", gripper=1, tolerance=0.006, speed=0.5, noise=0.3),
    Phase("release", gripper=0, tolerance=0.03, dwell=4),
    Phase("leave", gripper=0),
)
_ALIGN, _INSERT, _RELEASE, _LEAVE = 5, 6, 7, 8
OVER = PEG_TOP + NUT_HALF + 0.025  # metres: height of the nut's centre on its way


def _square_poses(state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    nut, turned, hand = truth[:, 7:10], _yaw(truth[:, 10:14]), state[:, :2]
    # The fingers close on the handle from both sides. Of the two ways round take the one that leaves the wrist room for a quarter turn.
    yaw = QUARTER / 2 + fold(turned - QUARTER / 2, np.pi)
    handle = nut[:, :2] + HANDLE * np.column_stack([np.cos(turned), np.sin(turned)])
    above, down = _pose(handle, nut[:, 2] + 0.08, yaw), _pose(handle, nut[:, 2] + 0.002, yaw)
    held = state[:, 2] - nut[:, 2]  # height of the hand over the nut
    # The least turn that brings the nut's sides parallel to the peg's, but for a handle that points away: the arm does not reach that far.
    ahead = turned % (2 * np.pi)
    turn = QUARTER * np.clip(np.round(ahead / QUARTER), 1, 3) - ahead
    cos, sin = np.cos(turn), np.sin(turn)
    reach = hand - nut[:, :2]
    place = PEG + np.column_stack([cos * reach[:, 0] - sin * reach[:, 1], sin * reach[:, 0] + cos * reach[:, 1]])
    lift, carry = _pose(hand, OVER + held, state[:, 3]), _pose(place, OVER + held, state[:, 3] + turn)
    insert = _pose(place, ON_PEG + held, state[:, 3] + turn)
    return np.stack([above, down, down, lift, carry, carry, insert, state[:, :4], _pose(hand, 1.0, state[:, 3])])


def _square_resume(phase: np.ndarray, state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    nut, turned = truth[:, 7:10], _yaw(truth[:, 10:14])
    handle = nut[:, :2] + HANDLE * np.column_stack([np.cos(turned), np.sin(turned)])
    away = np.linalg.norm(handle - state[:, :2], axis=1)
    off = np.abs(nut[:, :2] - PEG).max(1)
    on_peg = (off < 0.02) & (nut[:, 2] < PEG_TOP)
    lost = (phase >= _LIFT) & (phase < _RELEASE) & ((away > 0.04) | (state[:, 2] - nut[:, 2] > 0.05)) & ~on_peg
    missed = ((phase == 1) | (phase == _GRASP)) & (away > 0.03)
    undone = (phase == _LEAVE) & (state[:, 2] > 0.97) & ~((off < 0.03) & (nut[:, 2] < 0.87))
    beside = (phase == _INSERT) & (off > 0.012) & ~on_peg
    return np.where(lost | missed | undone, 0, np.where(beside, _ALIGN, phase))


SCRIPTS = {  # one for each arm
    "lift": (Script(LIFT, _lift_poses, _lift_resume),),
    "can": (Script(CAN, _can_poses, _can_resume),),
    "square": (Script(SQUARE, _square_poses, _square_resume),),
    "transport": transport.SCRIPTS,
    "tool_hang": (tool_hang.SCRIPT,),
}
