"""Smooth disturbances of hand targets, drawn from each episode's own generator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MEMORY = 0.7  # correlation from one step to the next
SCALE = np.array([1.0, 1.0, 1.0, 10.0])  # x, y, z in metres; yaw in radians gets 10x the number


def smooth(last: np.ndarray, rngs: Sequence[np.random.Generator], steps: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Continue first-order autoregressive noise from ``last`` [N, 4]; return noise [N, steps, 4] (deviation ``scale``), its end."""
    fresh = np.stack([rng.standard_normal((steps, 4)) for rng in rngs]) * scale * SCALE * np.sqrt(1 - MEMORY**2)
    out = np.empty_like(fresh)
    for k in range(steps):
        last = out[:, k] = MEMORY * last + fresh[:, k]
    return out, last
