"""Real-time chunking (arXiv 2506.07339): a fresh plan is sampled so that it goes on where the running one will be when it arrives.

    H planned actions, the first of them that of the moment it is begun; M of them are in the running plan too; A entries

At each sampling step the clean estimate x0 of the plan is pulled towards the running plan y where weights w want it, through the denoiser
(eq. 2 to 5, by the pseudo-inverse guidance of Song et al. 2023):

    x0' = x0 + min(strength, (spread^2 + signal^2) / signal) J^T (w (y - x0)),     J = dx0 / dx_t

A step moves the plan no further than it is off, which a denoiser that is poor at high noise would otherwise multiply. Here
x_t = signal * plan + spread * noise: sqrt(abar_t) and sqrt(1 - abar_t) of diffusion, 1 - t and t of a flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from real_robot.chunks import joined, prefix_weights
from robowm.data.spec import ACTION
from robowm.errors import UserError
from robowm.policy.lerobot import DenoisingAdapter
from robowm.policy.steps import Step
from robowm.types import Obs


@dataclass(frozen=True)
class RealTime:
    """For policies that denoise their plan. Plans are as long as the policy samples them, not as it was meant to execute them."""

    replan_after: int | None = 4  # steps of a plan after which the next is begun
    strength: float = 5.0  # most that a step pulls

    overlap = 1

    def __post_init__(self) -> None:
        if not self.strength > 0 or (self.replan_after is not None and self.replan_after < 1):
            raise UserError(f"chunking: strength={self.strength} (above 0), replan_after={self.replan_after} (1 or more, or null)")

    @torch.inference_mode(False)
    @torch.no_grad()
    def plan(self, policy: Any, obs: Obs, memory: Any, rng: np.random.Generator, left: np.ndarray, delay: int) -> tuple[np.ndarray, Any]:
        """See Chunking."""
        if not isinstance(policy, DenoisingAdapter):
            raise UserError(f"chunking=real_time guides how a plan is sampled, and {policy.name} does not sample; use chunking=blend")
        memory = policy.remember(obs, memory)
        family, config = policy.family, policy.model.config
        normalizer = policy.normalizers.by_key[ACTION]
        noise = policy.noise([rng])
        rows = policy.blocks(1)[0]
        context = family.context(policy.model, policy.batch(memory, rows))
        past = noise.shape[1] - family.ahead(config, noise).shape[1]  # planned actions that lie before now
        adjust = None
        if len(left):
            known = normalizer.normalize(torch.from_numpy(left)).to(policy.device)
            target, weight = held(known, noise[0], past, delay)
            adjust = self._pull(target, weight)
        sampled = family.sampled(policy.model, context, noise[rows], policy.steps, adjust)[:1]
        actions = normalizer.unnormalize(family.ahead(config, sampled).float())
        return actions[0].cpu().numpy(), memory

    def join(self, left: np.ndarray, fresh: np.ndarray, delay: int) -> np.ndarray:
        """See Chunking."""
        return joined(left, fresh, delay, 0)

    def _pull(self, target: Tensor, weight: Tensor):
        def adjust(x_t: Tensor, step: Step, clean: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                x = x_t.clone().detach().requires_grad_()
                estimate = step.denoise(x)
                error = (weight * (target - estimate)).detach()
                pull = torch.autograd.grad(estimate, x, error)[0]
            gain = min(self.strength, (step.spread**2 + step.signal**2) / max(step.signal, 1e-6))
            move = gain * pull
            longest = error.norm() / move.norm().clamp_min(1e-12)
            return x_t, clean + move * longest.clamp_max(1.0)

        return adjust


def held(known: Tensor, noise: Tensor, past: int, delay: int) -> tuple[Tensor, Tensor]:
    """Return what a plan is held to f32 [1, H, D] and how strongly f32 [1, H, 1], from the running plan ``known`` [M, A] (normalised).

    ``noise`` f32 [H, D] gives the sampler's own size: ``past`` of its H actions lie before now, and entries beyond A are free.
    """
    horizon = len(noise)
    count = min(len(known), horizon - past)
    target, weight = torch.zeros_like(noise), torch.zeros_like(noise)
    target[past : past + count, : known.shape[1]] = known[:count]
    weights = torch.from_numpy(prefix_weights(delay, count, horizon - past)).to(noise)
    weight[past:, : known.shape[1]] = weights[:, None]
    return target[None], weight[None]
