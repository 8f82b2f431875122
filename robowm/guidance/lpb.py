"""Latent Policy Barrier (arXiv 2508.05941), the baseline: where the current moment looks unlike any demonstrated one, the noisy plan is
moved so that the moment it leads to looks like its nearest demonstrated neighbour.

    x_t <- x_t - scale sqrt(1 - abar_t) d|zhat - nearest|/dx_t       through the denoiser and the dynamics, at the less noisy steps

The paper's threshold is a distance chosen for each task; here it is a percentile of the demonstrations' own, the same for all. Along a flow
t takes the place of sqrt(1 - abar_t): both are the standard deviation of the noise in x_t.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robowm.errors import UserError
from robowm.guidance.pcg import Moment, check_level
from robowm.guidance.targets import Targets
from robowm.policy.steps import Step


@dataclass(frozen=True)
class Lpb:
    """Settings."""

    scale: float = 0.05
    noisiest: float = 0.5  # noise level in [0, 1] below which guidance acts
    threshold: float | None = (
        95.0  # percentile of how far demonstrations are from each other, above which an episode is guided; None: always
    )

    def __post_init__(self) -> None:
        check_level(self.noisiest)
        if self.scale < 0 or not 0 <= (self.threshold or 0) <= 100:
            raise UserError(f"guide: scale={self.scale} (0 or more), threshold={self.threshold} (a percentile, 0 to 100, or null)")

    def adjust(self, moment: Moment, x_t: Tensor, step: Step, clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the moved x_t, the clean plan as it was, and bool [N], which episodes were guided."""
        if step.level >= self.noisiest:
            return x_t, clean, torch.zeros(len(clean), dtype=torch.bool, device=clean.device)
        seen = slice(0, moment.targets.seen)
        on = nearest(moment.latent, moment.targets, seen) > moment.targets.unlike(self.threshold)
        with torch.inference_mode(False), torch.enable_grad():
            x = x_t.clone().detach().requires_grad_()
            latent = moment.predict(step.denoise(x))
            gradient = torch.autograd.grad(nearest(latent, moment.targets, seen).sum(), x)[0]
        moved = x_t - self.scale * step.spread * gradient
        return torch.where(on[:, None, None], moved, x_t), clean, on

    def advance(self, latent: Tensor, targets: Targets, phase: Tensor, streak: Tensor) -> tuple[Tensor, Tensor]:
        """There are no phases."""
        return phase, streak


def nearest(latent: Tensor, targets: Targets, part: slice) -> Tensor:
    """Return the distance f32 [N] of the entries ``part`` of ``latent`` [N, D] to the nearest demonstrated moment."""
    return torch.cdist(latent[:, part], targets.demonstrated[:, part]).min(1).values
