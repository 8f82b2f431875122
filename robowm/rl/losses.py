"""DiffusionNFT's contrastive forward-process loss on clean estimates (x0). Pure functions.

Zheng et al., arXiv 2509.16117, equation 5, in the x0 form of PersistWorld (Bardhan et al., arXiv 2603.25685): the affine map between
velocity and x0 at one noise level changes neither the minimiser nor the improvement it promises.

    theta   the model in training          old   the lagged copy that sampled the candidates          ref   the model before post-training
"""

from __future__ import annotations

from torch import Tensor

from robowm.diffusion.flow import spread


def nft_errors(theta: Tensor, old: Tensor, sample: Tensor, r: Tensor, beta: float) -> Tensor:
    """Return (1 / beta) [r |x+ - x0|^2 + (1 - r) |x- - x0|^2] per entry, shaped like ``theta``.

        x+ = (1 - beta) x_old + beta x_theta        x- = (1 + beta) x_old - beta x_theta

    ``theta``, ``old`` [B, ...] are clean estimates from the same noised sample, ``sample`` [B, ...] is the candidate x0, ``r`` [B] its
    optimality. With the factor 1 / beta the gradient at theta = old is 2 (2r - 1)(x_old - x0) whatever beta is, and the pull back to old
    is 2 beta (x_theta - x_old): a smaller beta learns faster and trusts itself further.
    """
    if not beta > 0:
        raise ValueError(f"beta={beta}; it must be above 0")
    plus = (1 - beta) * old + beta * theta
    minus = (1 + beta) * old - beta * theta
    r = spread(r, theta)
    return (r * (plus - sample).square() + (1 - r) * (minus - sample).square()) / beta


def regression_target(old: Tensor, sample: Tensor, r: Tensor, beta: float) -> Tensor:
    """Return T with nft_errors = beta |x_theta - T|^2 + constant: T = x_old + (2r - 1) / beta * (x0 - x_old)."""
    return old + (2 * spread(r, old) - 1) / beta * (sample - old)


def reference_errors(theta: Tensor, ref: Tensor) -> Tensor:
    """Return |x_theta - x_ref|^2 per entry: for two denoisers of one noise level, their KL divergence up to a factor of the level."""
    return (theta - ref).square()


def old_decay(step: int, growth: float, limit: float, first: float = 0.0) -> float:
    """Return d of old <- d old + (1 - d) theta after update ``step``: min(first + growth * step, limit).

    d = 0 makes old equal to theta, and with it the contrast nothing but signed denoising without a trust region.
    """
    return min(first + growth * step, limit)
