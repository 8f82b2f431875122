"""A tabletop scene that lives in real time, or ``speed`` times as fast: physics catch up with the clock whenever somebody looks or acts.

The hand follows its set-point, and the set-point follows the goal that was sent, no faster than a motor controller would let it (0.5 m/s,
5 rad/s). Cameras run in one thread of their own, as cameras do. States and actions are those of the tabletop: x, y, z (metres), yaw
(radians), gripper (0 open .. 1 closed).
"""

from __future__ import annotations

import threading
import weakref
from collections import deque

import mujoco
import numpy as np

from real_robot.clock import Clock
from real_robot.sim_robot.faults import Faults
from sim.tabletop.control import FPS, MAX_MOVE, WORKSPACE
from sim.tabletop.scene import FINGER_JOINTS, FINGER_SQUEEZE, FINGER_TRAVEL, HAND_JOINTS, build_model
from sim.tabletop.task import STATE_NAMES
from sim.tabletop.tasks import load_task

STEP = 1 / 120  # seconds of one step of physics
RATE = MAX_MOVE * FPS  # [5] fastest set-point, a second
LONGEST = 2.0  # seconds of physics computed at once; what lies before is skipped, as if everything had stood still
STREAM = 2  # of start states, the same as in the tabletop environment

_worlds: weakref.WeakValueDictionary[str, World] = weakref.WeakValueDictionary()


def world_of(name: str) -> World | None:
    """Return the world of the robot with id ``name``, or None before that is connected."""
    return _worlds.get(name)


class World:
    """One scene. All methods may be called from any thread."""

    def __init__(self, name: str, task: str, clock: Clock, faults: Faults, seed: int) -> None:
        self.task, self.clock, self.faults = load_task(task), clock, faults
        self.lock = threading.RLock()
        self.model = build_model(self.task.bodies)
        self.model.opt.timestep = STEP
        self.data = mujoco.MjData(self.model)
        self._hand = np.array([self.model.joint(joint).qposadr[0] for joint in HAND_JOINTS])
        self._fingers = np.array([self.model.joint(joint).qposadr[0] for joint in FINGER_JOINTS])
        self._object = int(self.model.joint("object").qposadr[0])
        self._rng = np.random.default_rng([7, seed])
        self.seed = seed
        self.held_since: float | None = None  # clock seconds since when the goal has held
        self.moved_at = clock.now()  # when the set-point last moved
        self.person, self.resets = "", 0  # what the scripted person is about: recovery, or the task
        self.reset(seed)
        _worlds[name] = self

    def reset(self, seed: int) -> None:
        """Set up the scene of start ``seed``, hand included."""
        with self.lock:
            start = self.task.sample(np.random.default_rng([STREAM, int(seed)]), 1.0)
            data = self.data
            mujoco.mj_resetData(self.model, data)
            data.qpos[self._hand] = start.hand[:4]
            data.qpos[self._fingers] = start.hand[4] * FINGER_TRAVEL
            x, y, z, yaw = start.object
            data.qpos[self._object : self._object + 7] = [x, y, z, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
            x, y, yaw = start.target
            data.mocap_pos[0], data.mocap_quat[0] = [x, y, 0], [np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
            self._set_point = np.asarray(start.hand, float).copy()
            self._goal = self._set_point.copy()
            self._apply()
            mujoco.mj_forward(self.model, data)
            self._now = self.clock.now()
            self._coming: deque[tuple[float, np.ndarray]] = deque()
            self._past: deque[tuple[float, np.ndarray]] = deque([(self._now, self._measured())])
            self.seed, self.held_since, self.person = int(seed), None, ""
            self.resets += 1

    def send(self, goal: np.ndarray) -> None:
        """Give the hand a goal f64 [5], clipped to the workspace."""
        with self.lock:
            self.catch_up()
            goal = np.clip(goal, WORKSPACE[:, 0], WORKSPACE[:, 1])
            if self.faults.command_latency_s:
                self._coming.append((self.clock.now() + self.faults.command_latency_s, goal))
            else:
                self._goal = goal

    def state(self) -> np.ndarray:
        """Return the measured state f64 [5], as old and as noisy as the faults make it."""
        with self.lock:
            self.catch_up()
            now = self.clock.now() - self.faults.state_latency_s
            while len(self._past) > 1 and self._past[1][0] <= now:
                self._past.popleft()
            state = self._past[0][1] if self.faults.state_latency_s else self._measured()
            return state + self._rng.normal(0, self.faults.state_noise, state.shape) if self.faults.state_noise else state.copy()

    def truth(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the true state f32 [5] and environment state f32 [10]."""
        with self.lock:
            self.catch_up()
            yaw = 2 * np.arctan2(self.data.mocap_quat[0, 3], self.data.mocap_quat[0, 0])
            place = [*self.data.mocap_pos[0, :2], yaw]
            truth = np.concatenate([self.data.qpos[self._object : self._object + 7], place])
            return self._measured().astype(np.float32), truth.astype(np.float32)

    def goal_holds(self) -> bool:
        """Tell whether the task's goal holds right now."""
        return bool(self.task.holds(*self.truth()))

    def held_for(self) -> float:
        """Return for how many seconds, as far as anybody looked, the goal has held."""
        now = self.clock.now()
        if not self.goal_holds():
            self.held_since = None
        elif self.held_since is None:
            self.held_since = now
        return 0.0 if self.held_since is None else now - self.held_since

    def snapshot(self) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Return the time and what a camera needs: positions, and place and heading of the target."""
        with self.lock:
            self.catch_up()
            return self._now, self.data.qpos.copy(), self.data.mocap_pos.copy(), self.data.mocap_quat.copy()

    def catch_up(self) -> None:
        """Compute the physics up to now."""
        now = self.clock.now()
        if now - self._now > LONGEST:
            self._now = now - LONGEST
        while self._now + STEP <= now:
            while self._coming and self._coming[0][0] <= self._now:
                self._goal = self._coming.popleft()[1]
            move = np.clip(self._goal - self._set_point, -RATE * STEP, RATE * STEP)
            if np.abs(move).max() > 1e-9:
                self.moved_at = self._now
                self._set_point = self._set_point + move
                self._apply()
            mujoco.mj_step(self.model, self.data)
            self._now += STEP
            if self.faults.state_latency_s:
                self._past.append((self._now, self._measured()))

    def _apply(self) -> None:
        self.data.ctrl[:] = [*self._set_point[:4], *[self._set_point[4] * FINGER_SQUEEZE] * 2]

    def _measured(self) -> np.ndarray:
        return np.append(self.data.qpos[self._hand], self.data.qpos[self._fingers].mean() / FINGER_TRAVEL)


ACTION_NAMES = tuple(f"{name}.pos" for name in STATE_NAMES)  # as lerobot names positions
