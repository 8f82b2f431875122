"""DDIM sampling (Song et al. 2021, eq. 12 with eta = 0), written once over a scheduler of diffusers and any estimate of the clean chunk."""

from __future__ import annotations

import math
from typing import Any

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from torch import Tensor

from robowm.policy.steps import Adjust, Denoise, Step


def ddim_scheduler(trained: Any, steps: int) -> DDIMScheduler:
    """Return a DDIM scheduler of ``steps`` steps on the noise levels of ``trained`` (DDPM or DDIM), which takes clean estimates."""
    scheduler = DDIMScheduler.from_config(trained.config, prediction_type="sample")
    scheduler.set_timesteps(steps)
    return scheduler


def sample_ddim(x0: Denoise, noise: Tensor, scheduler: DDIMScheduler, adjust: Adjust | None = None) -> Tensor:
    """Return the chunk [B, H, A] that ``noise`` [B, H, A] becomes; ``adjust`` guides each step before it is taken.

    ``x0`` is asked at noise steps int64 [B].
    """
    x = noise
    for t in map(int, scheduler.timesteps):
        steps = torch.full((len(x),), t, dtype=torch.long, device=x.device)
        clean = x0(x, steps)
        if adjust is not None:
            level, variance = t / scheduler.config.num_train_timesteps, 1 - float(scheduler.alphas_cumprod[t])
            step = Step(level, math.sqrt(variance), math.sqrt(1 - variance), lambda y, steps=steps: x0(y, steps))
            x, clean = adjust(x, step, clean)
        x = scheduler.step(clean, t, x).prev_sample
    return x


def clean_from_noise(x_t: Tensor, noise: Tensor, t: Tensor, alphas_cumprod: Tensor) -> Tensor:
    """Return x0 = (x_t - sqrt(1 - a_t) noise) / sqrt(a_t) for a predicted ``noise`` [B, H, A] at steps t [B] (DDPM eq. 4)."""
    a = alphas_cumprod.to(x_t)[t][:, None, None]
    return (x_t - (1 - a).sqrt() * noise) / a.sqrt()
