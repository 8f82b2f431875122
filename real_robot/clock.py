"""The time that everything around one robot shares. A simulated robot may live faster than we do; nothing else knows of it."""

from __future__ import annotations

import threading
import time


class Clock:
    """Seconds of the robot's time since an arbitrary moment: ``time.perf_counter`` times ``speed``, as lerobot's cameras stamp frames."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    def now(self) -> float:
        """Return the time in seconds."""
        return time.perf_counter() * self.speed

    def of_stamp(self, stamp: float) -> float:
        """Return the time at which ``time.perf_counter`` gave ``stamp``."""
        return stamp * self.speed

    def sleep_until(self, moment: float, wake: threading.Event | None = None) -> bool:
        """Wait until ``moment``, or until ``wake`` is set; return whether it was."""
        left = (moment - self.now()) / self.speed
        if wake is None:
            time.sleep(max(left, 0.0))
            return False
        return wake.wait(max(left, 0.0))
