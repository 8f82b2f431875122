"""Noise schedules as data: a table of levels f32 [N+1, F], one row per sampling step, one column per frame, falling to 0.

``together`` gives every frame the same level. A table whose columns fall one after another denoises early frames first (Diffusion Forcing,
Chen et al. 2024; Rolling Diffusion, Ruhe et al. 2024); the sampler takes any table, so such a schedule is a function that returns one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robowm.errors import UserError


def together(steps: int, frames: int) -> Tensor:
    """Return levels 1, (steps - 1) / steps, ..., 0 for all frames alike."""
    if steps < 1:
        raise UserError(f"sampling_steps={steps}; it must be at least 1")
    return torch.linspace(1, 0, steps + 1)[:, None].expand(-1, frames).contiguous()


def check_schedule(levels: Tensor) -> None:
    """Raise ValueError unless each column of ``levels`` [N+1, F] starts in (0, 1], never rises and ends at 0."""
    if levels.dim() != 2 or len(levels) < 2:
        raise ValueError(f"a schedule is a table [N+1, F] with N >= 1, found shape {tuple(levels.shape)}")
    if not ((levels[0] > 0) & (levels[0] <= 1)).all() or not (levels[-1] == 0).all() or (levels.diff(dim=0) > 0).any():
        raise ValueError("each frame's levels must start in (0, 1], never rise and end at 0")
