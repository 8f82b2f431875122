"""Noise schedules as data: a table of levels f32 [N+1, F], one row per sampling step, one column per frame, falling to 0.

The sampler takes any table, so a schedule is a function that returns one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robowm.errors import UserError


def together(steps: int, frames: int) -> Tensor:
    """Return levels 1, (steps - 1) / steps, ..., 0 for all frames alike."""
    return staggered(steps, frames, lag=0)


def staggered(steps: int, frames: int, lag: int) -> Tensor:
    """Return levels [steps + lag (F - 1) + 1, F]: each frame takes ``steps`` steps and starts ``lag`` steps after the one before it.

    With ``lag`` 1 noise grows with the distance into the future (the pyramid of Diffusion Forcing, Chen et al. 2024); with ``lag`` =
    ``steps`` one frame is finished after the other. All F frames are finished together at the end: the stairs stay within one chunk, see
    ``rolling`` for those that go on. A network for such tables has seen frames with levels of their own in training.
    """
    if steps < 1:
        raise UserError(f"sampling_steps={steps}; it must be at least 1")
    if lag < 0:
        raise UserError(f"lag={lag}; frames start 0 or more sampling steps after each other")
    taken = torch.arange(steps + lag * (frames - 1) + 1)[:, None] - lag * torch.arange(frames)
    return 1 - taken.clamp(0, steps) / steps


def rolling(steps: int, frames: int, lag: int) -> tuple[Tensor, Tensor]:
    """Return two parts of ``staggered``: levels [steps - lag + 1, F] from noise onto the stairs, [lag + 1, F] that finish a first frame.

    The second ends one frame further than it began: without its first frame, and with one of noise behind the last, a window stands where
    it stood, so the same part finishes frame after frame, without an end (Rolling Diffusion, Ruhe et al. 2024).
    """
    if not 1 <= lag <= steps <= lag * frames:
        raise UserError(
            f"a rolling window of {frames} frames takes world_model.lag from {-(-steps // frames)} to {steps} with {steps} sampling steps, "
            f"found {lag}; train with such a lag and loss.own_levels=0.5, or change sampling_steps"
        )
    table = staggered(steps, frames, lag)
    return table[: steps - lag + 1], table[steps - lag : steps + 1]


def check_schedule(levels: Tensor) -> None:
    """Raise ValueError unless each column of ``levels`` [N+1, F] starts in (0, 1], never rises and ends at 0."""
    if levels.dim() != 2 or len(levels) < 2:
        raise ValueError(f"a schedule is a table [N+1, F] with N >= 1, found shape {tuple(levels.shape)}")
    if not ((levels[0] > 0) & (levels[0] <= 1)).all() or not (levels[-1] == 0).all() or (levels.diff(dim=0) > 0).any():
        raise ValueError("each frame's levels must start in (0, 1], never rise and end at 0")
