"""What goes wrong with a robot, to inject: late data, lost frames, stalled cameras, noise. All off by default."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from robowm.errors import UserError


@dataclass(frozen=True)
class Faults:
    """Amounts; times are seconds of the robot's own."""

    command_latency_s: float = 0.0  # from send_action until the set-point follows
    state_latency_s: float = 0.0  # age of the measured state
    frame_latency_s: float = 0.0  # from a picture to its delivery
    read_s: float = 0.0  # how long get_observation takes
    drop: float = 0.0  # share of frames that a camera loses
    stall_every_s: float = 0.0  # a camera stops about this often (0: never) ...
    stall_s: float = 0.0  # ... for so long
    state_noise: float = 0.0  # standard deviation of the measured state, in its own units
    pixel_noise: float = 0.0  # ... of a pixel, 0 to 255

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) >= 0:
                raise UserError(f"robot.faults.{field.name}={getattr(self, field.name)}; it must be 0 or more")
        if self.drop > 1:
            raise UserError(f"robot.faults.drop={self.drop}; it is a share, 0 to 1")


def noisy(frame: np.ndarray, deviation: float, rng: np.random.Generator) -> np.ndarray:
    """Return ``frame`` uint8 [h, w, 3] with Gaussian noise on its pixels."""
    if not deviation:
        return frame
    return np.clip(frame + rng.normal(0, deviation, frame.shape), 0, 255).astype(np.uint8)


def stalls(duration_s: float, every_s: float, stall_s: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Return (start, end) of the stalls that begin within ``duration_s`` seconds; gaps are exponential with mean ``every_s``."""
    found, at = [], 0.0
    while every_s > 0 and stall_s > 0:
        at += rng.exponential(every_s)
        if at >= duration_s:
            break
        found.append((at, at + stall_s))
        at += stall_s
    return found
