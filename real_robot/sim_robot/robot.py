"""The tabletop as a lerobot robot: robot.type=robowm_sim."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from lerobot.robots import Robot, RobotConfig
from lerobot.utils.errors import DeviceNotConnectedError

from real_robot.clock import Clock
from real_robot.sim_robot.cameras import Film, SimCamera, SimCameraConfig
from real_robot.sim_robot.faults import Faults
from real_robot.sim_robot.world import ACTION_NAMES, World
from robowm.errors import UserError, nearest
from sim.tabletop.env import CAMERAS
from sim.tabletop.tasks import load_task


@RobotConfig.register_subclass("robowm_sim")
@dataclass(kw_only=True)
class RobowmSimRobotConfig(RobotConfig):
    """Settings; ``id`` is how teleoperators find the scene."""

    id: str | None = "sim"
    task: str = "pick_place"  # file name in sim/tabletop/tasks
    image_size: int = 128  # pixels
    views: list[str] = field(default_factory=lambda: list(CAMERAS))
    camera_hz: float = 30.0
    speed: float = 1.0  # seconds of the robot's per second of ours
    seed: int = 0  # of the first scene, and of faults
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        for name in ("speed", "camera_hz"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"robot.{name}={getattr(self, name)}; it must be a number above 0")
        for name in self.views:
            if name not in CAMERAS:
                raise UserError(f"robot.views has {name!r}; {nearest(name, CAMERAS)}")


class RobowmSimRobot(Robot):
    """Satisfies lerobot's Robot. Beside it: ``speed``, ``reset_scene``, ``world`` and ``film``."""

    config_class = RobowmSimRobotConfig
    name = "robowm_sim"

    def __init__(self, config: RobowmSimRobotConfig) -> None:
        super().__init__(config)
        load_task(config.task)  # a wrong name is said at once
        self.config, self.speed = config, config.speed
        size = {"width": config.image_size, "height": config.image_size, "fps": round(config.camera_hz)}
        self.cameras = {name: SimCamera(SimCameraConfig(**size)) for name in config.views}
        self.world: World | None = None
        self.film: Film | None = None
        self._sending = threading.Lock()

    @cached_property
    def observation_features(self) -> dict[str, Any]:
        size = self.config.image_size
        return {**dict.fromkeys(ACTION_NAMES, float), **dict.fromkeys(self.cameras, (size, size, 3))}

    @cached_property
    def action_features(self) -> dict[str, type]:
        return dict.fromkeys(ACTION_NAMES, float)

    @property
    def is_connected(self) -> bool:
        return self.world is not None

    @property
    def is_calibrated(self) -> bool:
        return True

    def calibrate(self) -> None:
        """See Robot: there is nothing to calibrate."""

    def configure(self) -> None:
        """See Robot: there is nothing to configure."""

    def connect(self, calibrate: bool = True) -> None:
        """See Robot."""
        self.world = World(str(self.id), self.config.task, Clock(self.speed), self.config.faults, self.config.seed)
        if self.cameras:
            self.film = Film(self.world, self.cameras, self.config.image_size, self.config.camera_hz, self.config.seed)
            self.film.start()

    def reset_scene(self, seed: int) -> None:
        """Set up the scene of start ``seed``, as a person would between episodes; only simulated robots can."""
        self._connected().reset(seed)

    def get_observation(self) -> dict[str, Any]:
        """See Robot."""
        world = self._connected()
        if world.faults.read_s:
            time.sleep(world.faults.read_s / self.speed)
        state = world.state()
        frames = {name: camera.read_latest() for name, camera in self.cameras.items()}
        return {**{name: float(value) for name, value in zip(ACTION_NAMES, state, strict=True)}, **frames}

    def send_action(self, action: dict[str, float]) -> dict[str, float]:
        """See Robot."""
        world = self._connected()
        with self._sending:
            world.send(np.array([float(action[name]) for name in ACTION_NAMES]))
        return {name: float(action[name]) for name in ACTION_NAMES}

    def disconnect(self) -> None:
        """See Robot."""
        if self.film is not None:
            self.film.stop()
            self.film = None
        for camera in self.cameras.values():
            camera.disconnect()
        self.world = None

    def _connected(self) -> World:
        if self.world is None:
            raise DeviceNotConnectedError(f"{self} is not connected")
        return self.world
