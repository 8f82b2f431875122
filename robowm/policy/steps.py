"""What a sampler of plans shows to a guide at each step, the same for DDIM and for flow matching."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Denoise = Callable[[Tensor, Tensor], Tensor]  # (x_t [B, H, A], t [B]) -> clean estimate [B, H, A]


@dataclass(frozen=True)
class Step:
    """One sampling step."""

    level: float  # of noise, in [0, 1]: the share of DDPM's training steps that lie below, or the time of a flow
    spread: float  # standard deviation of the noise in x_t: sqrt(1 - abar_t), or the time of a flow
    signal: float  # scale of the clean plan in x_t: sqrt(abar_t), or 1 minus the time of a flow
    denoise: Callable[[Tensor], Tensor]  # x_t [B, H, A] -> clean estimate


Adjust = Callable[[Tensor, Step, Tensor], tuple[Tensor, Tensor]]  # (x_t, step, clean estimate) -> x_t and the estimate, moved
