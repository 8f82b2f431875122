"""What guidance aims at, as tensors for N episodes that may be in different phases, and soft distances to it.

N episodes, D entries of a latent (the first ``seen`` show what is seen), P phases, M prototypes of a phase
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robowm.guidance.phases import Phases


@dataclass(frozen=True)
class Targets:
    """A phase table and the demonstrations' own latents."""

    prototypes: Tensor  # f32 [P, M, D]
    valid: Tensor  # bool [P, M]
    temperature: Tensor  # f32 [P]
    percentiles: Phases
    demonstrated: Tensor  # f32 [R, D], every demonstrated moment
    seen: int

    @classmethod
    def of(cls, phases: Phases, demonstrated: Tensor, seen: int, device: torch.device | str = "cpu") -> Targets:
        """Return the table of ``phases`` on ``device``."""
        tensors = (torch.from_numpy(x).to(device) for x in (phases.prototypes, phases.valid, phases.temperature))
        return cls(*tensors, percentiles=phases, demonstrated=demonstrated.to(device), seen=seen)

    def threshold(self, percentile: float | None) -> Tensor:
        """Return f32 [P], see ``Phases.threshold``."""
        return torch.from_numpy(self.percentiles.threshold(percentile)).to(self.prototypes)

    def unlike(self, percentile: float | None) -> float:
        """See ``Phases.unlike``."""
        return self.percentiles.unlike(percentile)

    def distances(self, latent: Tensor, phase: Tensor, part: slice = slice(None)) -> Tensor:
        """Return f32 [N, M] from the entries ``part`` of ``latent`` [N, D] to the prototypes of each episode's ``phase`` int64 [N]."""
        found = torch.cdist(latent[:, None, part], self.prototypes[phase][..., part]).squeeze(1)
        return found.masked_fill(~self.valid[phase], torch.inf)

    def soft_distance(self, latent: Tensor, phase: Tensor) -> Tensor:
        """Return d_soft f32 [N] of ``latent`` to each episode's phase, at that phase's temperature."""
        return soft_minimum(self.distances(latent, phase), self.temperature[phase][:, None])

    def beyond(self, latent: Tensor, phase: Tensor) -> Tensor:
        """Return d_soft f32 [N] to the phase after each episode's; infinity after the last."""
        last = len(self.prototypes) - 1
        return self.soft_distance(latent, (phase + 1).clamp_max(last)).masked_fill(phase >= last, torch.inf)


def soft_minimum(distance: Tensor, temperature: Tensor | float) -> Tensor:
    """Return -t log sum_m exp(-d_m / t) over the last dimension; see phases.py for its bias."""
    return (-temperature * torch.logsumexp(-distance / temperature, -1, keepdim=True)).squeeze(-1)
