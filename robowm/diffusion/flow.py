"""The straight path between data and noise, and the ways to say where a noisy sample came from.

Flow matching (Lipman et al. 2022; Liu et al. 2022): x_t = (1 - t) x0 + t eps with eps ~ N(0, I), level t in [0, 1], 0 = clean, 1 = noise.
Networks here predict x0; velocity and noise follow from it. Levels may differ per sample and per frame: a level has the leading dimensions
of the sample, and is spread over the rest.
"""

from __future__ import annotations

import torch
from torch import Tensor


def spread(level: Tensor, like: Tensor) -> Tensor:
    """Return ``level`` [B, ...] with trailing ones appended, so that it broadcasts against ``like`` [B, ..., D, ...]."""
    return level.reshape(*level.shape, *(1,) * (like.dim() - level.dim()))


def add_noise(x0: Tensor, noise: Tensor, level: Tensor) -> Tensor:
    """Return x_t = (1 - t) x0 + t eps."""
    t = spread(level, x0)
    return (1 - t) * x0 + t * noise


def velocity(x0: Tensor, noise: Tensor) -> Tensor:
    """Return v = dx_t/dt = eps - x0."""
    return noise - x0


def x0_from_velocity(x_t: Tensor, v: Tensor, level: Tensor) -> Tensor:
    """Return x0 = x_t - t v."""
    return x_t - spread(level, x_t) * v


def velocity_from_x0(x_t: Tensor, x0: Tensor, level: Tensor) -> Tensor:
    """Return v = (x_t - x0) / t, for t > 0."""
    return (x_t - x0) / spread(level, x_t)


def noise_from_x0(x_t: Tensor, x0: Tensor, level: Tensor) -> Tensor:
    """Return eps = (x_t - (1 - t) x0) / t, for t > 0."""
    t = spread(level, x_t)
    return (x_t - (1 - t) * x0) / t


def draw_levels(shape: tuple[int, ...], pure_noise: float, generator: torch.Generator) -> Tensor:
    """Draw training levels: exactly 1 with probability ``pure_noise``, else uniform in (0, 1].

    The first sampling step starts at pure noise and decides most, so it gets its own share.
    """
    uniform = 1 - torch.rand(shape, generator=generator, device=generator.device)
    pure = torch.rand(shape, generator=generator, device=generator.device) < pure_noise
    return torch.where(pure, 1.0, uniform)
