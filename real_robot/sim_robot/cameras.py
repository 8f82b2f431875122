"""The simulated robot's cameras: lerobot cameras one thread renders their pictures, delivers them late, loses some or stalls."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from lerobot.cameras import Camera, CameraConfig

from real_robot.sim_robot.faults import noisy, stalls
from real_robot.sim_robot.world import World
from sim.render import Renderer

HORIZON_S = 24 * 3600.0  # for which stalls are drawn
WARM_UP_S = 20.0  # wall seconds that the first picture may take: OpenGL starts


@CameraConfig.register_subclass("robowm_sim")
@dataclass(kw_only=True)
class SimCameraConfig(CameraConfig):
    """Of one view of the scene."""


class SimCamera(Camera):
    """One view; ``Film`` gives it its pictures."""

    def __init__(self, config: SimCameraConfig) -> None:
        super().__init__(config)
        self._changed = threading.Condition()
        self.frame: np.ndarray | None = None
        self.latest_timestamp: float | None = None  # time.perf_counter() when the picture was taken
        self._read_at: float | None = None

    @property
    def is_connected(self) -> bool:
        return self.frame is not None

    @staticmethod
    def find_cameras() -> list[dict[str, Any]]:
        """See Camera: there is nothing to find."""
        return []

    def connect(self, warmup: bool = True) -> None:
        """See Camera; the robot starts them all."""

    def deliver(self, frame: np.ndarray, stamp: float) -> None:
        """Take a picture uint8 [h, w, 3] that was taken at ``stamp``."""
        with self._changed:
            self.frame, self.latest_timestamp = frame, stamp
            self._changed.notify_all()

    def read(self) -> np.ndarray:
        """See Camera."""
        return self.async_read()

    def async_read(self, timeout_ms: float = 200) -> np.ndarray:
        """See Camera."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.latest_timestamp not in (None, self._read_at), timeout_ms / 1e3):
                raise TimeoutError(f"no new frame within {timeout_ms:g} ms")
            self._read_at = self.latest_timestamp
            return self.frame.copy()

    def read_latest(self, max_age_ms: int = 500) -> np.ndarray:
        """See Camera."""
        with self._changed:
            if self.frame is None:
                raise RuntimeError("the camera has not captured any frames yet")
            age = (time.perf_counter() - self.latest_timestamp) * 1e3
            if age > max_age_ms:
                raise TimeoutError(f"the latest frame is {age:.0f} ms old")
            return self.frame.copy()

    def disconnect(self) -> None:
        """See Camera; the robot ends them all."""
        self.frame = None


class Film:
    """The thread behind all cameras of one world; ``hz`` pictures of each a second of the robot's."""

    def __init__(self, world: World, cameras: dict[str, SimCamera], size: int, hz: float, seed: int) -> None:
        self._world, self._cameras, self._size, self._hz = world, cameras, size, hz
        self._rngs = {name: np.random.default_rng([8, seed, i]) for i, name in enumerate(cameras)}
        faults, self._began = world.faults, world.clock.now()
        self._stalls = {name: deque(stalls(HORIZON_S, faults.stall_every_s, faults.stall_s, rng)) for name, rng in self._rngs.items()}
        self._ended = threading.Event()
        self.error: BaseException | None = None
        self.stalled = dict.fromkeys(cameras, False)  # set by tests and people: a camera that hangs
        self._thread = threading.Thread(target=self._run, name="cameras", daemon=True)

    def start(self) -> None:
        """Render until ``stop``; returns once every camera has a picture."""
        self._thread.start()
        until = time.monotonic() + WARM_UP_S
        while not all(camera.is_connected for camera in self._cameras.values()):
            if self.error is not None:
                raise RuntimeError(f"cameras do not start: {self.error}") from self.error
            if time.monotonic() > until:
                raise RuntimeError(f"no picture within {WARM_UP_S:g} s")
            time.sleep(0.005)

    def stop(self) -> None:
        """End the thread and free OpenGL. Safe to call twice."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        renderer = None
        try:
            model = self._world.model
            data = mujoco.MjData(model)
            renderer = Renderer(model, self._size, list(self._cameras), tiles=len(self._cameras))
            atexit.register(self.stop)  # before OpenGL is taken down
            self._shoot(renderer, data)
        except Exception as error:  # noqa: BLE001 (said by whoever waits for pictures)
            self.error = error
        finally:
            if renderer is not None:
                renderer.close()
            atexit.unregister(self.stop)

    def _shoot(self, renderer: Renderer, data: mujoco.MjData) -> None:
        clock, faults = self._world.clock, self._world.faults
        coming: deque[tuple[float, str, np.ndarray, float]] = deque()
        due = clock.now()
        while not self._ended.is_set():
            at, data.qpos[:], data.mocap_pos[:], data.mocap_quat[:] = self._world.snapshot()
            mujoco.mj_kinematics(self._world.model, data)
            mujoco.mj_camlight(self._world.model, data)
            pictures = renderer.render([data])[0]
            for picture, (name, rng) in zip(pictures, self._rngs.items(), strict=True):
                if not self._lost(name, at - self._began, rng):
                    coming.append((at + faults.frame_latency_s, name, noisy(picture, faults.pixel_noise, rng), at / clock.speed))
            while coming and coming[0][0] <= clock.now():
                _, name, picture, stamp = coming.popleft()
                self._cameras[name].deliver(picture, stamp)
            due = max(due + 1 / self._hz, clock.now())
            clock.sleep_until(due, self._ended)

    def _lost(self, name: str, since: float, rng: np.random.Generator) -> bool:
        """Tell whether a picture taken ``since`` seconds after the start is lost, or the camera stands still."""
        windows = self._stalls[name]
        while windows and windows[0][1] <= since:
            windows.popleft()
        stalled = self.stalled[name] or bool(windows and windows[0][0] <= since)
        first = self._cameras[name].frame is None
        return not first and (stalled or (self._world.faults.drop > 0 and rng.random() < self._world.faults.drop))
