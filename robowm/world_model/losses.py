"""The supervised loss of a world model and the context it trains on. Randomness comes from the generator alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robowm.diffusion.flow import add_noise, draw_levels, spread
from robowm.world_model.model import Context


@dataclass(frozen=True)
class Corruption:
    """How training context is made to look like a rollout's own."""

    context_noise: float = 0.3  # highest noise level of context frames; uniform from 0
    cold_start: float = 0.15  # share of clips whose whole history is the current row, as at the start of a rollout
    state_noise: float = 0.01  # standard deviation on normalised context proprioception
    pure_noise: float = 0.3  # share of clips trained at pure noise, where sampling starts


def corrupt(context: Context, how: Corruption, generator: torch.Generator) -> Context:
    """Return ``context`` with cold starts and noise; the noise level of its frames is told to the network."""
    b, device = len(context.frames), context.frames.device
    cold = torch.rand(b, generator=generator, device=device) < how.cold_start
    frames = torch.where(spread(cold, context.frames), context.frames[:, -1:], context.frames)
    state = torch.where(spread(cold, context.state), context.state[:, -1:], context.state)
    level = how.context_noise * torch.rand(b, generator=generator, device=device)
    noise = torch.randn(frames.shape, generator=generator, device=device)
    state = state + how.state_noise * torch.randn(state.shape, generator=generator, device=device)
    return Context(context.pinned, add_noise(frames, noise, level), level, state, context.action)


def denoising_errors(net, frames: Tensor, states: Tensor, context: Context, level: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return squared errors of the clean estimates per frame: pictures f32 [B, F] and proprioception f32 [B, F].

    ``frames`` f32 [B, F, C, h, w] and ``states`` f32 [B, F, S] are the truth, ``level`` [B, F] and ``noise`` say how it was hidden.
    """
    x0, motion = net(add_noise(frames, noise, level), level, context)
    return (x0.float() - frames).square().mean((2, 3, 4)), (motion.float() - states).square().mean(2)


def supervised_loss(net, frames: Tensor, states: Tensor, context: Context, how: Corruption, generator: torch.Generator):
    """Return (scalar, raw terms) of one batch: mean squared error of the clean estimate at a random level per clip."""
    b, f = frames.shape[:2]
    level = draw_levels((b,), how.pure_noise, generator)[:, None].expand(b, f)
    noise = torch.randn(frames.shape, generator=generator, device=frames.device)
    pictures, proprioception = denoising_errors(net, frames, states, corrupt(context, how, generator), level, noise)
    terms = {"frames": pictures.mean(), "state": proprioception.mean()}
    return terms["frames"] + terms["state"], terms
