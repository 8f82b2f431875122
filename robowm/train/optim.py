"""Optimiser settings, the learning-rate schedule and the moving average of the weights, each a function of the step alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from robowm.errors import UserError


@dataclass(frozen=True)
class OptimConfig:
    """AdamW with warm-up, a schedule and a moving average of the weights.

    ``ema`` is the largest decay of the average, ``ema_power`` how fast it is reached: after n updates the decay is
    min(ema, 1 - (1 + n)^-ema_power), Karras' power schedule as in Diffusion Policy. ``ema=0`` keeps the live weights.
    """

    lr: float = 1e-4
    weight_decay: float = 1e-6
    betas: tuple[float, float] = (0.95, 0.999)
    warmup_steps: int = 500
    schedule: Literal["cosine", "constant"] = "cosine"
    grad_clip: float = 1.0
    ema: float = 0.9999
    ema_power: float = 0.75

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        if self.schedule not in ("cosine", "constant"):
            raise UserError(f"optim.schedule={self.schedule!r} is unknown; use cosine or constant")
        if not self.lr > 0 or not self.grad_clip > 0 or self.warmup_steps < 0:
            raise UserError(f"optim needs lr > 0, grad_clip > 0 and warmup_steps >= 0, found {self}")
        if not self.weight_decay >= 0 or len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"optim needs weight_decay >= 0 and two betas in [0, 1), found {self.weight_decay} and {list(self.betas)}")
        if not 0 <= self.ema < 1 or not self.ema_power > 0:
            raise UserError(f"optim needs 0 <= ema < 1 and ema_power > 0, found ema={self.ema}, ema_power={self.ema_power}")


def lr_at(step: int, steps: int, config: OptimConfig) -> float:
    """Return the learning rate of update ``step`` (0-based) of ``steps``: linear warm-up, then a half cosine to zero, or constant."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    progress = (step - config.warmup_steps) / max(steps - config.warmup_steps, 1)
    return config.lr * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def ema_decay_at(updates: int, config: OptimConfig) -> float:
    """Return the decay of the average's next update after ``updates`` of them."""
    return min(config.ema, 1 - (1 + updates) ** -config.ema_power)


def make_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """Return AdamW over the trainable parameters of ``model``, which must be on its device already."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    fused = all(p.device.type in ("cpu", "cuda") for p in trainable)
    return torch.optim.AdamW(trainable, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=fused)


class Ema:
    """Moving average of a model's weights with its own update counter. Buffers are copied, not averaged."""

    def __init__(self, model: nn.Module, config: OptimConfig) -> None:
        self._config = config
        self.updates = 0
        self.weights: dict[str, Tensor] = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the average towards the live weights by one update."""
        decay = ema_decay_at(self.updates, self._config)
        averages, live = [], []
        parameters = dict(model.named_parameters(remove_duplicate=False))
        for name, value in model.state_dict().items():
            if name in parameters and value.is_floating_point():
                averages.append(self.weights[name])
                live.append(value)
            else:
                self.weights[name].copy_(value)
        torch._foreach_lerp_(averages, live, 1 - decay)
        self.updates += 1

    @torch.no_grad()
    def load(self, weights: dict[str, Tensor], updates: int) -> None:
        """Restore an average and its counter."""
        for name, value in self.weights.items():
            value.copy_(weights[name])
        self.updates = updates
