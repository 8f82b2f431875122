"""The scripts of Transport, one for each arm: bin the trash, and hand the hammer from the closed bin over to the other, see scripts.py.

Arm 0, at -y, lifts the lid by its handle and lays it on its table beside the bin, takes the hammer by the half of its handle that is away
from arm 1 and offers it in the air between the tables, its handle along y. With its head ahead the hammer tips in the fingers until the
handle's end meets the palm. Arm 1 meanwhile takes the cube out of the target bin, lets it fall into the trash bin, waits until the hammer
is offered, and takes it by the handle's other half, leaning, so that the two hands stay clear of each other. Arm 0 lets go once it sees
the other's fingers closed there; arm 1 goes on once it sees arm 0's hand gone, and lays the hammer, which may hang, into the target bin.

``state`` is the arm's own tilted pose [N, 6] of hand.py, ``truth`` [N, 47] the environment state, robomimic's "object" (41), and then the
tilted pose of the other arm's hand. Hands that face the other arm have yaws of about a quarter turn (arm 0) and minus that (arm 1). A phase
that waits for the other arm holds its pose for ever; ``resume`` sends it on.
"""

from __future__ import annotations

import numpy as np

from sim.experts.waypoints import Phase, Script, fold
from sim.robosuite.rotation import from_quaternion

QUARTER = np.pi / 2
FOR_EVER = 10**9  # steps
HIGH = 1.08  # metres: height of a hand that passes over the bins, 0.951 high
START_BIN = np.array([0.2, -0.45])  # metres: middle of the bin that the hammer starts in
LID_AT = np.array([-0.21, -0.45, 0.832])  # metres: where the lid's handle is when the lid lies on the table
NEAR, FAR = 0.050, 0.070  # metres from the middle of the hammer's handle to where arm 0 holds it, and arm 1
WAIT_AT = np.array([0.0, 0.25, 1.20])  # metres: where arm 1 waits for the hammer
MEET = np.array([0.0, 0.0, 1.10])  # metres: where the middle of the handle is when it is handed over
ENDS = np.array([-0.10, 0.13])  # metres from the handle's middle to the hammer's ends, along its axis
LAID = 0.83  # metres: height of the hammer's lowest end at which it is let go
TRASH_FALLS = 0.92  # metres: height of the hand that lets the cube go
IN_BIN = -0.2  # radians: tilt of a hand deep in a bin; upright, that close to its arm's base, its wrist would be near its limit
CLEAR = 0.008  # metres above an object's middle where fingers close on it: lower they would touch what it lies on
TAKE = 0.8  # radians: tilt of arm 1 where it takes the hammer, so that the hands, side by side, stay clear of each other
OFF = 0.09 * np.array([0, np.sin(TAKE), np.cos(TAKE)])  # metres from where it takes it to where it comes from
TIPS = 1.15  # metres: height of the hand from which a hammer that tips in its fingers passes over the bin
OVER = 1.20  # metres: height of the hand that carries the hammer, which may hang down
REACH = 0.25  # metres: beyond this y, and its negative, things lie within one arm's reach alone
FLOOR = 0.78  # metres: what is below has fallen off the tables and is out of reach

ARM_0 = (
    Phase("above lid", gripper=0, tolerance=0.015),
    Phase("down", gripper=0, tolerance=0.008, dwell=2, speed=0.6, noise=0.5),
    Phase("grasp lid", gripper=1, tolerance=0.03, dwell=5),
    Phase("lift lid", gripper=1, tolerance=0.03, speed=0.6),
    Phase("carry lid", gripper=1, tolerance=0.03),
    Phase("lower lid", gripper=1, tolerance=0.012, speed=0.6),
    Phase("release lid", gripper=0, tolerance=0.03, dwell=4),
    Phase("rise", gripper=0, tolerance=0.06),
    Phase("above hammer", gripper=0, tolerance=0.012),
    Phase("down", gripper=0, tolerance=0.008, dwell=2, speed=0.6, noise=0.5),
    Phase("grasp hammer", gripper=1, tolerance=0.03, dwell=6),
    Phase("lift hammer", gripper=1, tolerance=0.03, speed=0.8),
    Phase("carry hammer", gripper=1, tolerance=0.02),
    Phase("offer", gripper=1, dwell=FOR_EVER, noise=0.5),
    Phase("given", gripper=1, tolerance=0.05, dwell=4, noise=0.3),
    Phase("let go", gripper=0, tolerance=0.05, dwell=4, noise=0.3),
    Phase("leave", gripper=0, tolerance=0.03, noise=0.5),
    Phase("away", gripper=0, dwell=FOR_EVER),
)
_GRASP_LID, _LIFT_LID, _HAMMER, _GRASP_HAMMER, _OFFER, _GIVEN, _AWAY = 2, 3, 8, 10, 13, 14, 17

ARM_1 = (
    Phase("above trash", gripper=0, tolerance=0.015),
    Phase("down", gripper=0, tolerance=0.008, dwell=2, speed=0.6, noise=0.5),
    Phase("grasp trash", gripper=1, tolerance=0.03, dwell=5),
    Phase("lift trash", gripper=1, tolerance=0.03, speed=0.6),
    Phase("carry trash", gripper=1, tolerance=0.03),
    Phase("lower trash", gripper=1, tolerance=0.03),
    Phase("drop trash", gripper=0, tolerance=0.03, dwell=3),
    Phase("rise", gripper=0, tolerance=0.05),
    Phase("wait", gripper=0, dwell=FOR_EVER),
    Phase("above hammer", gripper=0, tolerance=0.012, noise=0.5),
    Phase("down", gripper=0, tolerance=0.008, dwell=2, speed=0.6, noise=0.3),
    Phase("take", gripper=1, dwell=FOR_EVER, noise=0.3),
    Phase("lift", gripper=1, tolerance=0.03),
    Phase("carry", gripper=1, tolerance=0.03),
    Phase("lower", gripper=1, tolerance=0.02),
    Phase("release", gripper=0, tolerance=0.03, dwell=4),
    Phase("leave", gripper=0),
)
_GRASP_TRASH, _DROP_TRASH, _WAIT, _ABOVE, _TAKE, _LIFT, _RELEASE, _LEAVE = 2, 6, 8, 9, 11, 12, 15, 16


def _pose(place: np.ndarray, yaw: np.ndarray | float, tilt: float = 0) -> np.ndarray:
    return np.column_stack([place, np.broadcast_to(yaw, len(place)), np.full(len(place), tilt)])


def _at(place: np.ndarray, n: int) -> np.ndarray:
    return np.broadcast_to(place, (n, len(place)))


def _raised(place: np.ndarray, z: float) -> np.ndarray:
    """Return places or poses ``z`` metres higher."""
    return place + np.eye(place.shape[1])[2] * z


def _at_height(place: np.ndarray, z: float) -> np.ndarray:
    return np.column_stack([place[:, :2], np.full(len(place), z), place[:, 3:]])


def _hammer(truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle of the hammer's handle and the direction along it towards arm 1, both [N, 3]."""
    axis = from_quaternion(truth[:, 3:7])[..., 2]
    return truth[:, :3], axis * np.where(axis[:, 1:2] >= 0, 1, -1)


def _far_from(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.norm(a[:, :3] - b[:, :3], axis=1)


def _brought(state: np.ndarray, truth: np.ndarray, point: np.ndarray, goal: np.ndarray, heading: float) -> np.ndarray:
    """Return the pose of the hand [N, 5] for ``point`` [N, 3] of the hammer that it holds to be at ``goal``, the handle along y."""
    _, along = _hammer(truth)
    lies = np.linalg.norm(along[:, :2], axis=1) > 0.3  # a hammer that hangs straight down has no direction to turn
    turn = np.where(lies, QUARTER - np.arctan2(along[:, 1], along[:, 0]), 0)
    x, y, z = (state[:, :3] - point).T
    place = np.column_stack([np.cos(turn) * x - np.sin(turn) * y, np.sin(turn) * x + np.cos(turn) * y, z])
    return _pose(goal + place, heading + fold(state[:, 3] + turn - heading, 2 * np.pi))


def _arm_0_poses(state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    n = len(state)
    lid = _pose(_raised(truth[:, 14:17], CLEAR), QUARTER)
    lifted, laid = _pose(_at(np.append(START_BIN, HIGH), n), QUARTER), _pose(_at(LID_AT, n), QUARTER)
    over = _at_height(laid, HIGH)
    opened = [_raised(lid, 0.08), lid, lid, lifted, over, laid, laid, over]
    middle, along = _hammer(truth)
    grip = _pose(_raised(middle - NEAR * along, CLEAR), np.arctan2(along[:, 1], along[:, 0]), IN_BIN)
    offered = _brought(state, truth, middle, MEET, QUARTER)
    here = _pose(_at(MEET - [0, NEAR, 0], n), QUARTER)
    away = _pose(_at(np.array([0, -0.35, 1.15]), n), QUARTER)
    given = [_at_height(grip, HIGH), grip, grip, _at_height(lifted, TIPS), offered, offered, offered, here, _raised(here, 0.12), away]
    return np.stack(opened + given)


def _arm_0_resume(phase: np.ndarray, state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    other, lid = truth[:, 41:], truth[:, 14:17]
    middle, along = _hammer(truth)
    taken = (other[:, 5] > 0.4) & (_far_from(other, middle + FAR * along) < 0.03)
    closed = (np.abs(lid[:, :2] - START_BIN).max(1) < 0.12) & (lid[:, 2] > 0.93)
    no_lid = ((phase > 0) & (phase <= _GRASP_LID) & (np.linalg.norm((lid - state[:, :3])[:, :2], axis=1) > 0.03)) | (
        (phase >= _LIFT_LID) & closed & (_far_from(lid, state) > 0.06)
    )
    grip = middle - NEAR * along
    missed = (phase > _HAMMER) & (phase <= _GRASP_HAMMER) & (np.linalg.norm((grip - state[:, :3])[:, :2], axis=1) > 0.03)
    lost = (phase > _GRASP_HAMMER) & (phase <= _OFFER) & (_far_from(middle, state) > 0.13)
    fell_back = (phase > _OFFER) & (middle[:, 1] < -REACH)
    return np.select(
        [middle[:, 2] < FLOOR, no_lid, missed | lost | fell_back, (phase == _OFFER) & taken, (phase == _GIVEN) & ~taken],
        [_AWAY, 0, _HAMMER, _GIVEN, _OFFER],
        phase,
    )


def _arm_1_poses(state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    n = len(state)
    axes = from_quaternion(truth[:, 10:14])
    turned = fold(np.arctan2(axes[:, 1, 0], axes[:, 0, 0]), QUARTER) - QUARTER  # a cube looks the same after a quarter turn
    cube = _pose(_raised(truth[:, 7:10], CLEAR), turned, IN_BIN)
    target_bin, trash_bin = (_pose(truth[:, i : i + 3], -QUARTER, IN_BIN) for i in (21, 24))
    over = _at_height(trash_bin, HIGH)
    falls = _at_height(trash_bin, TRASH_FALLS)
    trash = [_at_height(cube, HIGH), cube, cube, _at_height(target_bin, HIGH), over, falls, falls, over]
    wait = _pose(_at(WAIT_AT, n), -QUARTER, TAKE)
    middle, along = _hammer(truth)
    grip = _pose(middle + FAR * along, np.arctan2(-along[:, 1], -along[:, 0]), TAKE)
    before = grip + np.append(OFF, [0, 0])
    ends = middle[:, None] + ENDS[:, None] * from_quaternion(truth[:, 3:7])[:, None, :, 2]  # [N, 2, 3]
    carry = _at_height(_brought(state, truth, ends.mean(1), truth[:, 21:24], -QUARTER), OVER)
    lower = carry.copy()
    lower[:, 2] = state[:, 2] + LAID - ends[..., 2].min(1)
    leave = _at_height(_pose(truth[:, 21:24], -QUARTER), OVER)
    hammer = [wait, before, grip, grip, wait, carry, lower, state[:, :5], leave]
    return np.stack(trash + hammer)


def _arm_1_resume(phase: np.ndarray, state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    other, cube, laid, binned = truth[:, 41:], truth[:, 7:10], truth[:, 27] > 0.5, truth[:, 28] > 0.5
    middle, along = _hammer(truth)
    grip = middle + FAR * along
    missed = (phase > 0) & (phase <= _GRASP_TRASH) & (np.linalg.norm((cube - state[:, :3])[:, :2], axis=1) > 0.03)
    lost = (phase > _GRASP_TRASH) & (phase < _DROP_TRASH) & (_far_from(cube, state) > 0.05)
    again = (phase == _WAIT) & ~binned
    reachable = (cube[:, 1] > REACH) & (cube[:, 2] > FLOOR)
    offered = (_far_from(middle, _at(MEET, len(state))) < 0.03) & (other[:, 5] > 0.4)
    there = offered | ((middle[:, 1] > REACH) & (middle[:, 2] > FLOOR))
    gone = (phase > _WAIT) & (phase < _TAKE) & ~there
    slipped = (phase >= _TAKE) & (phase < _RELEASE) & (_far_from(grip, state) > 0.06)
    undone = (phase == _LEAVE) & (state[:, 2] > OVER - 0.05) & ~laid
    held = (phase == _TAKE) & (state[:, 5] > 0.4) & (other[:, 5] < 0.2) & (_far_from(other, grip) > 0.15)
    return np.select(
        [(missed | lost | again) & reachable, missed | lost | gone | slipped | undone, (phase == _WAIT) & there, held],
        [0, _WAIT, _ABOVE, _LIFT],
        phase,
    )


SCRIPTS = (
    Script(ARM_0, _arm_0_poses, _arm_0_resume, tilted=True),
    Script(ARM_1, _arm_1_poses, _arm_1_resume, tilted=True),
)
