"""Robots, people and policies for tests alone."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

import numpy as np

from real_robot.devices import spec_of
from real_robot.labels import Event


class FakeRobot:
    """Two joints that are at once where they are told to be."""

    name = "fake"
    observation_features: ClassVar = {"a.pos": float, "gripper.pos": float, "front": (8, 8, 3)}
    action_features: ClassVar = {"a.pos": float, "gripper.pos": float}

    def __init__(self):
        self.pose = {"a.pos": 0.0, "gripper.pos": 0.0}
        self.sent, self.hang, self.failures, self.deaf = [], threading.Event(), 0, False
        self.is_connected = False

    def connect(self):
        self.is_connected = True

    def disconnect(self):
        self.is_connected = False

    def get_observation(self):
        while self.hang.is_set():
            self.hang.wait(0)
            threading.Event().wait(0.002)
            raise TimeoutError("the latest frame is 600 ms old")
        if self.failures:
            self.failures -= 1
            raise ConnectionError("incorrect status packet")
        return {**self.pose, "front": np.full((8, 8, 3), len(self.sent) % 256, np.uint8)}

    def send_action(self, action):
        if self.deaf:
            raise ConnectionError("bus lost")
        self.sent.append(dict(action))
        self.pose = dict(action)
        return action


class FakeWheels(FakeRobot):
    """Where a is, told how fast to drive."""

    observation_features: ClassVar = {"a.pos": float, "front": (8, 8, 3)}
    action_features: ClassVar = {"a.pos": float, "base.vel": float}


class FakeTeleop:
    """Always wants one pose."""

    name = "fake_teleop"
    feedback_features: ClassVar = {}
    action_features: ClassVar = {"a.pos": float, "gripper.pos": float}

    def __init__(self, pose=(1.0, 0.5)):
        self.pose, self.is_connected, self.fed = pose, False, []

    def connect(self):
        self.is_connected = True

    def disconnect(self):
        self.is_connected = False

    def get_action(self):
        return dict(zip(self.action_features, self.pose, strict=True))


class Script:
    """An operator that says ``said`` {step: events} when so many steps are recorded, once each."""

    judge = "human"

    def __init__(self, said=None, up=(Event.FAILURE,), holds=lambda: True):
        self.plan, self.up, self.holds = said or {}, list(up), holds
        self.modes = []

    def open(self, arm):
        self.arm = arm

    def prepare(self, seed):
        self._left, self._ready = dict(self.plan), True

    def poll(self, mode, step):
        if self._ready:
            self._ready = False
            return [Event.READY]
        self.modes.append(mode)
        return self._left.pop(step, [])

    def time_is_up(self):
        return self.up

    def holding(self):
        return self.holds()

    def let_go(self, why):
        self.why = why

    def close(self):
        self.closed = True


class Counting:
    """A policy whose plans are ``chunk`` actions of one number, which grows by one from plan to plan."""

    name = "fake.counting"
    tasks = ()

    def __init__(self, chunk=4, delay_s=0.0, values=None):
        self.chunk, self.delay_s, self.values, self.plans, self.starts, self.rows = chunk, delay_s, values, 0, 0, []

    def start(self, n):
        self.starts += 1
        return None

    def act(self, obs, memory, rngs):
        time.sleep(self.delay_s)
        self.rows.append(obs.state.shape[1])
        value = self.values[min(self.plans, len(self.values) - 1)] if self.values else 0.1 * self.plans
        self.plans += 1
        return np.full((1, self.chunk, 2), value, np.float32), None


def spec(robot, fps=30.0):
    return spec_of(robot, fps=fps, image_size=None, gripper=None)
