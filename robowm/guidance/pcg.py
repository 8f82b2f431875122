"""Phase-conditioned guidance (PCG) of ReGuide, arXiv 2606.28939: gate and step on the clean estimate, and the switch of phases.

    N episodes, H planned actions of A entries, D entries of a latent

At the less noisy steps of the sampler a dynamics model predicts the latent z that the clean estimate of the plan leads to. Where z lies
outside of the demonstrations of the current phase but not hopelessly far, the plan takes a step down the soft distance to them:

    L(z)     = w_seen smin(|z_seen - g_seen|) + w_felt smin(|z_felt - g_felt|)       over the prototypes g of the phase
    x0'      = x0 - c dL/dx0                                                         through the dynamics alone, not through the denoiser
    gate     : lower < d_soft(z; phase) <= upper, and z is not yet within the switching distance of the next phase
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robowm.errors import UserError
from robowm.guidance.targets import Targets, soft_minimum
from robowm.policy.steps import Step

Predict = Callable[[Tensor], Tensor]  # clean plan f32 [N, H, A] -> latent f32 [N, D]


@dataclass(frozen=True)
class Moment:
    """One replan of N episodes: what a guide may look at."""

    latent: Tensor  # f32 [N, D], now
    phase: Tensor  # int64 [N]
    targets: Targets
    predict: Predict


@dataclass(frozen=True)
class Pcg:
    """Settings; percentiles are of the demonstrations' own soft distances. None switches a bound off."""

    scale: float = 0.05  # c
    noisiest: float = 0.5  # noise level in [0, 1] below which guidance acts
    lower: float | None = 30.0  # percentile: nearer plans are left alone
    upper: float | None = 90.0  # percentile: farther ones are given up
    switch: float = 80.0  # percentile of the next phase at which an episode may enter it
    margin: float = 0.2  # ... if it is nearer by so much
    patience: int = 2  # ... at so many replans in a row
    seen: float = 1.0
    felt: float = 0.2
    sharpness: float = 0.05  # temperature of smin in L

    def __post_init__(self) -> None:
        check_level(self.noisiest)
        if self.scale < 0 or self.sharpness <= 0 or self.patience < 1:
            raise UserError(
                f"guide: scale={self.scale} (0 or more), sharpness={self.sharpness} (above 0), patience={self.patience} (1 or more)"
            )

    def adjust(self, moment: Moment, x_t: Tensor, step: Step, clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x_t, the guided clean plan and bool [N], where the gate was open."""
        if step.level >= self.noisiest:
            return x_t, clean, torch.zeros(len(clean), dtype=torch.bool, device=clean.device)
        with torch.inference_mode(False), torch.enable_grad():
            plan = clean.clone().detach().requires_grad_()
            latent = moment.predict(plan)
            gradient = torch.autograd.grad(self.pull(latent, moment).sum(), plan)[0]
        on = self.gate(latent.detach(), moment)
        return x_t, torch.where(on[:, None, None], clean - self.scale * gradient, clean), on

    def pull(self, latent: Tensor, moment: Moment) -> Tensor:
        """Return L f32 [N]."""
        seen = moment.targets.seen
        blocks = ((self.seen, slice(0, seen)), (self.felt, slice(seen, None)))
        return sum(w * soft_minimum(moment.targets.distances(latent, moment.phase, part), self.sharpness) for w, part in blocks)

    def gate(self, latent: Tensor, moment: Moment) -> Tensor:
        """Return bool [N]: guide these."""
        targets, phase = moment.targets, moment.phase
        distance = targets.soft_distance(latent, phase)
        lower = -torch.inf if self.lower is None else targets.threshold(self.lower)[phase]
        arrived = targets.beyond(latent, phase) <= targets.threshold(self.switch)[_next(targets, phase)]
        return (distance > lower) & (distance <= targets.threshold(self.upper)[phase]) & ~arrived

    def advance(self, latent: Tensor, targets: Targets, phase: Tensor, streak: Tensor) -> tuple[Tensor, Tensor]:
        """Return phase and streak int64 [N] after a replan at ``latent`` [N, D]; a phase is never left backwards."""
        here, beyond = targets.soft_distance(latent, phase), targets.beyond(latent, phase)
        ready = (beyond < here - self.margin) & (beyond < targets.threshold(self.switch)[_next(targets, phase)])
        streak = torch.where(ready, streak + 1, 0)
        moved = streak >= self.patience
        return phase + moved.long(), torch.where(moved, 0, streak)


@dataclass(frozen=True)
class NoisyPcg(Pcg):
    """The paper's ablation: the same pull and gate, but the noisy plan moves, by a gradient through the denoiser too, as LPB's does."""

    def adjust(self, moment: Moment, x_t: Tensor, step: Step, clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the moved x_t, the clean plan as it was, and bool [N], where the gate was open."""
        if step.level >= self.noisiest:
            return x_t, clean, torch.zeros(len(clean), dtype=torch.bool, device=clean.device)
        with torch.inference_mode(False), torch.enable_grad():
            x = x_t.clone().detach().requires_grad_()
            latent = moment.predict(step.denoise(x))
            gradient = torch.autograd.grad(self.pull(latent, moment).sum(), x)[0]
        on = self.gate(latent.detach(), moment)
        return torch.where(on[:, None, None], x_t - self.scale * step.spread * gradient, x_t), clean, on


def check_level(noisiest: float) -> None:
    """Raise UserError unless ``noisiest`` is a noise level."""
    if not 0 <= noisiest <= 1:
        raise UserError(
            f"guide: noisiest={noisiest}; it is a noise level from 0 (never guided) to 1 (guided at every level below pure noise)"
        )


def _next(targets: Targets, phase: Tensor) -> Tensor:
    return (phase + 1).clamp_max(len(targets.prototypes) - 1)
