"""One sampler for every schedule.

A denoiser is any ``x0(x_t [B, F, ...], level [B, F]) -> clean estimate [B, F, ...]``: a network with its conditioning bound, or a wrapper
around another denoiser that changes its estimate (guidance, clipping). Wrappers compose because they are denoisers themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor

from robowm.diffusion.flow import spread
from robowm.diffusion.schedule import check_schedule

Denoise = Callable[[Tensor, Tensor], Tensor]


def sample(denoise: Denoise, noise: Tensor, levels: Tensor, fresh: Tensor | None = None) -> Tensor:
    """Turn ``noise`` [B, F, ...] into samples by following ``levels`` [N+1, F].

    From level t to s < t: x_s = (1 - s) x0 + s eps. By default eps is the noise that explains x_t, which makes this Euler's method on
    dx/dt = (x_t - x0) / t, equal to DDIM. With ``fresh`` [N-1, B, F, ...] eps is fresh noise at each intermediate level (ancestral
    sampling: stochastic even given the first noise). Frames whose level does not change in a row stay as they are.
    """
    check_schedule(levels)
    return follow(denoise, noise, levels, fresh)


def follow(denoise: Denoise, x: Tensor, levels: Tensor, fresh: Tensor | None = None) -> Tensor:
    """Move ``x`` [B, F, ...] from the first to the last row of ``levels``, which may end above 0; see ``sample``."""
    levels = levels.to(x.device)
    for i, (now, following) in enumerate(pairwise(levels)):
        t, s = (spread(level.expand(x.shape[:2]), x) for level in (now, following))
        x0 = denoise(x, now.expand(x.shape[:2]))
        # At the end of the path the formula gives x0 itself; where() keeps it exact, and finished frames (t = 0) untouched.
        eps = (x - (1 - t) * x0) / t.clamp_min(1e-6) if fresh is None or i == len(levels) - 2 else fresh[i]
        moved = ((1 - s) * x0 + s * eps).where(s > 0, x0)
        x = moved.where(t > s, x)
    return x


def clipped(denoise: Denoise, low: float, high: float) -> Denoise:
    """Return ``denoise`` with its estimates kept inside [low, high]."""
    return lambda x, level: denoise(x, level).clamp(low, high)
