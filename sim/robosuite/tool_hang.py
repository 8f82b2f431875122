"""The script of ToolHang: put the frame's rod into the stand, then hang the tool's ring on the frame's hook, see sim.robosuite.scripts.

The frame lies flat. The hand takes it by its grip, leaning, so that a quarter turn about the fingers' line brings the rod upright while
the hand comes level from the left; the hook then points ahead, away from the robot. The tool lies flat and stays level: its ring goes down
over the hook, its handle ahead of it, and when it is let go it tips and hangs.

``state`` is a tilted pose [N, 6] of hand.py, ``truth`` the environment state [N, 44]: robomimic's "object".
"""

from __future__ import annotations

import numpy as np

from sim.experts.waypoints import Phase, Script, fold
from sim.robosuite.rotation import from_quaternion

HOLE = np.array([-0.08, 0.045])  # metres: where the stand's hole is,
TOP, FLOOR = 0.961, 0.811  # metres: from which height down to which
GRIP, TIP, POST = 0.034, 0.221, 0.0875  # metres from the frame's corner to its grip, the rod's tip and the hook at its other end
RING = 0.0975  # metres from the tool's middle to the ring that hangs
HIGH = 1.12  # metres: height at which a hand passes over all that stands
LEAN, TOOL_LEAN = 0.45, 0.5  # radians: tilt of the hand that takes the frame, and the tool
UPRIGHT = np.diag([-1.0, -1, 1])  # the frame's axes when its rod is upright and its bar points ahead, to world's x
OVER = ((0, 0.040), (0, 0.030))  # metres ahead of and above the corner under the hook: where the ring goes on its way there, and then
HANG = np.array([[0.35, 0, 0.006], [0.8, -0.0015, 0.0015], [1.2, -0.010, -0.002]])  # where at which angle (radians) of the handle downwards
QUARTER = np.pi / 2

TOOL_HANG = (
    Phase("above", gripper=0, tolerance=0.015),
    Phase("down", gripper=0, tolerance=0.007, noise=0.5),
    Phase("grasp", gripper=1, tolerance=0.03, dwell=9),
    Phase("lift", gripper=1, tolerance=0.02),
    Phase("carry", gripper=1, tolerance=0.01),
    Phase("align", gripper=1, tolerance=0.003, dwell=2, speed=0.5, noise=0.3),
    Phase("insert", gripper=1, tolerance=0.006, speed=0.5, noise=0.3),
    Phase("release", gripper=0, tolerance=0.03, dwell=4),
    Phase("back", gripper=0, tolerance=0.03),
    Phase("rise", gripper=0, tolerance=0.05),
    Phase("above tool", gripper=0, tolerance=0.015),
    Phase("down", gripper=0, tolerance=0.007, noise=0.5),
    Phase("grasp tool", gripper=1, tolerance=0.03, dwell=9),
    Phase("lift tool", gripper=1, tolerance=0.03),
    Phase("carry tool", gripper=1, tolerance=0.01),
    Phase("align tool", gripper=1, tolerance=0.003, dwell=2, speed=0.5, noise=0.3),
    Phase("lower", gripper=1, tolerance=0.003, speed=0.5, noise=0.3),
    Phase("hang", gripper=1, tolerance=0.004, speed=0.5, noise=0.3),
    Phase("release tool", gripper=0, tolerance=0.03, dwell=6),
    Phase("leave", gripper=0),
)
_GRASP, _ALIGN, _INSERT, _TOOL, _GRASP_TOOL, _RELEASE_TOOL = 2, 5, 6, 10, 12, 18


def _pose(place: np.ndarray, yaw: np.ndarray | float, tilt: np.ndarray | float) -> np.ndarray:
    return np.column_stack([place, *(np.broadcast_to(angle, len(place)) for angle in (yaw, tilt))])


def _moved(place: np.ndarray, x: float = 0, y: float = 0, z: float = 0) -> np.ndarray:
    """Return places or poses [N, 3 or 5] elsewhere, by metres."""
    return place + np.array([x, y, z, 0, 0])[: place.shape[1]]


def _at_height(place: np.ndarray, z: float) -> np.ndarray:
    return np.column_stack([place[:, :2], np.full(len(place), z)])


def _above(state: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Return the pose [N, 5] over ``down`` to approach it from, high until the hand is over it and turned: the stand is in the way."""
    beside = (np.linalg.norm(state[:, :2] - down[:, :2], axis=1) > 0.06) | (np.abs(state[:, 3] - down[:, 3]) > 0.4)
    above = _moved(down, z=0.08)
    above[beside, 2] = HIGH
    return above


def _bring(state: np.ndarray, turn: np.ndarray, point: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return where the hand [N, 3] has to be for ``point`` [N, 3] of what it holds to be at ``goal`` [3], turned by ``turn`` [N, 3, 3]."""
    return goal + (turn @ (state[:, :3] - point)[..., None])[..., 0]


def _frame_poses(state: np.ndarray, truth: np.ndarray) -> list[np.ndarray]:
    axes = from_quaternion(truth[:, 24:28])
    across, up = axes[..., 0], axes[..., 2]  # away from the hook; along the rod, away from its tip
    grip, tip = truth[:, 21:24] - GRIP * up, truth[:, 21:24] - TIP * up
    heading = fold(np.arctan2(-up[:, 1], -up[:, 0]) - 0.7, 2 * np.pi) + 0.7
    down = _pose(_moved(grip, z=0.002), heading, LEAN)
    lift = _pose(_at_height(state, 1.10), state[:, 3], state[:, 4])
    turn = UPRIGHT @ axes.swapaxes(1, 2)  # to where the rod is upright and the hook points ahead
    yaw = state[:, 3] + fold(np.pi - np.arctan2(across[:, 1], across[:, 0]), 2 * np.pi)
    ahead = np.cos(state[:, 3]) * up[:, 0] + np.sin(state[:, 3]) * up[:, 1]
    tilt = state[:, 4] - np.arctan2(-ahead, up[:, 2])
    carry, align, insert = (_pose(_bring(state, turn, tip, np.append(HOLE, z)), yaw, tilt) for z in (TOP + 0.04, TOP + 0.012, FLOOR))
    stay = state[:, :5]
    back = _pose(np.array([HOLE[0], HOLE[1] + 0.12, 1.08]) + 0 * grip, QUARTER, state[:, 4])
    rise = _pose(np.array([HOLE[0], HOLE[1] + 0.10, 1.20]) + 0 * grip, 0, 0)
    return [_above(state, down), down, down, lift, carry, align, insert, stay, back, rise]


def _tool_poses(state: np.ndarray, truth: np.ndarray) -> list[np.ndarray]:
    axes, tool = from_quaternion(truth[:, 38:42]), truth[:, 35:38]
    along = axes[..., 0]  # away from the ring
    turned, dip = np.arctan2(along[:, 1], along[:, 0]), np.arcsin(-along[:, 2].clip(-1, 1))
    yaw = 0.7 + fold(turned - 0.7, 2 * np.pi)
    down = _pose(_moved(tool, z=0.002), yaw, TOOL_LEAN)
    lift = _pose(_at_height(state, 1.15), state[:, 3], state[:, 4])
    corner = truth[:, 21:24] - POST * from_quaternion(truth[:, 24:28])[..., 0]
    straight = state[:, 3] - fold(turned, 2 * np.pi)
    angle = np.minimum(dip + 0.2, HANG[-1, 0])
    x, z = (np.interp(angle, HANG[:, 0], column) for column in HANG[:, 1:].T)
    past = np.column_stack([x, HOLE[1] - corner[:, 1], z])  # past the hook the ring brings the bar back ahead, should it be turned
    ways = [*((HANG[0, 0], np.array([x, 0, z])) for x, z in OVER), (HANG[0, 0], np.insert(HANG[0, 1:], 1, 0)), (angle, past)]
    hung = []
    for angle, way in ways:
        angle = np.broadcast_to(angle, len(state))
        place = _bring(state, _dipped(angle) @ axes.swapaxes(1, 2), tool - RING * along, corner + way)
        hung.append(_pose(place, straight, state[:, 4] + dip - angle))
    leave = _pose(_moved(tool, x=0.08, z=0.12), state[:, 3], state[:, 4])
    return [_above(state, down), down, down, lift, *hung, state[:, :5], leave]


def _dipped(angle: np.ndarray) -> np.ndarray:
    """Return rotations [N, 3, 3] that turn x down by ``angle`` [N] in radians."""
    cos, sin, zero = np.cos(angle), np.sin(angle), np.zeros(len(angle))
    return np.stack([np.stack(row, -1) for row in ((cos, zero, sin), (zero, zero + 1, zero), (-sin, zero, cos))], 1)


def _poses(state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.stack(_frame_poses(state, truth) + _tool_poses(state, truth))


def _resume(phase: np.ndarray, state: np.ndarray, truth: np.ndarray) -> np.ndarray:
    up = from_quaternion(truth[:, 24:28])[..., 2]
    grip, tip = truth[:, 21:24] - GRIP * up, truth[:, 21:24] - TIP * up
    to_grip, to_tool = (np.linalg.norm(place - state[:, :3], axis=1) for place in (grip, truth[:, 35:38]))
    in_stand, hangs = truth[:, 42] > 0.5, truth[:, 43] > 0.5
    frame = ((phase > 0) & (phase <= _GRASP) & (np.linalg.norm((grip - state[:, :3])[:, :2], axis=1) > 0.03)) | (
        (phase > _GRASP) & (phase <= _INSERT) & (to_grip > 0.05)
    )
    missed = (phase > _TOOL) & (phase <= _GRASP_TOOL) & (np.linalg.norm((truth[:, 35:38] - state[:, :3])[:, :2], axis=1) > 0.03)
    lost = (phase > _GRASP_TOOL) & (phase < _RELEASE_TOOL) & (to_tool > 0.06)
    undone = (phase > _RELEASE_TOOL) & (to_tool > 0.12) & ~hangs
    beside = (phase == _INSERT) & (tip[:, 2] < TOP) & (np.abs(tip[:, :2] - HOLE).max(1) > 0.01)
    return np.select([frame | ((phase == _TOOL) & ~in_stand), missed | lost | undone, beside], [0, _TOOL, _ALIGN], phase)


SCRIPT = Script(TOOL_HANG, _poses, _resume, tilted=True)
