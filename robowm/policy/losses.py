"""Reducing per-step errors to one number: one weighted mean, so that masks, weights and advantages all go through the same line."""

from __future__ import annotations

import torch
from torch import Tensor

from robowm.errors import UserError


def weighted_mean(errors: Tensor, valid: Tensor, weight: Tensor) -> Tensor:
    """Return sum(w e) / sum(w) over the valid steps, a scalar; 0 where every weight is 0.

    ``errors`` f32 [B, H], ``valid`` bool [B, H], ``weight`` f32 [B, H]. With all weights one this is the mean over the valid steps, in the
    same bits. Errors and weights of invalid steps, NaN included, reach neither the value nor the gradient. Raises UserError for a shape
    that differs and for a negative or non-finite weight on a valid step.
    """
    if not errors.shape == valid.shape == weight.shape:
        raise UserError(f"errors {tuple(errors.shape)}, valid {tuple(valid.shape)} and weight {tuple(weight.shape)} must have one shape")
    weight = torch.where(valid, weight, 0.0)
    if not (torch.isfinite(weight) & (weight >= 0)).all():
        row, step = (~(torch.isfinite(weight) & (weight >= 0))).nonzero()[0].tolist()
        raise UserError(f"the weight of clip {row}, step {step} is {weight[row, step].item()}; weights must be finite and at least 0")
    total = (weight * torch.where(valid, errors, 0.0)).sum()
    return total / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)


def effective_share(valid: Tensor, weight: Tensor) -> Tensor:
    """Return (sum w)^2 / (n sum w^2) over the n valid steps: 1 when all weights are equal, 1 / n when one has everything."""
    weight = torch.where(valid, weight, 0.0)
    return weight.sum() ** 2 / (valid.sum() * (weight**2).sum()).clamp_min(torch.finfo(weight.dtype).tiny)


def repeat_edges(action: Tensor, valid: Tensor) -> Tensor:
    """Return ``action`` [B, H, A] with every invalid step replaced by the nearest earlier valid one (by the first where none is earlier).

    The noised chunk is an input of a denoiser as a whole, so what stands in the padding must be a function of the valid steps alone.
    """
    steps = torch.arange(valid.shape[1], device=valid.device)
    last = torch.cummax(torch.where(valid, steps, -1), dim=1).values  # [B, H] nearest valid step at or before, -1 = none
    first = valid.int().argmax(1, keepdim=True)
    source = torch.where(last < 0, first, last)
    filled = action.gather(1, source[..., None].expand(-1, -1, action.shape[-1]))
    return torch.where(valid.any(1)[:, None, None], filled, 0.0)
