"""Two critics on one backbone: will the policy succeed from here, and how soon (HABC, arXiv 2606.17043, section "critics").

    B states, D entries of a latent, n steps of an executed chunk

    viability    z_v = f_v(phi(s))    "will this end in success under the current policy?"          BCE on labelled steps
    efficiency   V_e = f_e(phi(s))    "how long will it take, given success?", in units of -n steps  Huber on successes alone

phi is a residual network over a frozen policy encoder's latents (policy/latents.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robowm.nn.mlp import ResidualMlp

HUBER = 1.0  # delta, in chunks


class Critics(nn.Module):
    """The network. A fresh one says even odds and no time at all."""

    def __init__(self, size: int, chunk: int, width: int = 64, depth: int = 1, dropout: float = 0.2) -> None:
        super().__init__()
        self.facts = {"size": size, "chunk": chunk, "width": width, "depth": depth, "dropout": dropout}
        self.chunk = chunk
        self.heads = ResidualMlp(size, 2, width, depth, dropout)

    def forward(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits z_v f32 [B] and values V_e f32 [B], in chunks, of states f32 [B, D]."""
        logit, value = self.heads(latent).float().unbind(-1)
        return logit, value


@dataclass(frozen=True)
class Batch:
    """B states with a viability label, and B others with steps to go (none at all where nothing succeeded)."""

    judged: Tensor  # f32 [B, D]
    outcome: Tensor  # f32 [B], 1 or 0
    timed: Tensor  # f32 [B, D] states on the way to a success
    togo: Tensor  # f32 [B], chunks until it
    after: Tensor  # f32 [B, D] states at the end of their windows
    span: Tensor  # f32 [B], chunks until there, at most 1
    arrives: Tensor  # bool [B], there the goal holds


Target = Callable[[nn.Module, Batch], Tensor]


def monte_carlo(net: nn.Module, batch: Batch) -> Tensor:
    """Return y_e f32 [B] as it came out: minus the chunks until success."""
    return -batch.togo


@torch.no_grad()
def bootstrap(net: nn.Module, batch: Batch) -> Tensor:
    """Return y_e f32 [B] = -span + V_e(state after the window), 0 for V_e where the goal holds: the paper's target over n steps."""
    training = net.training
    _, value = net.eval()(batch.after)  # a target without dropout's noise
    net.train(training)
    return -batch.span + torch.where(batch.arrives, 0.0, value)


@dataclass(frozen=True)
class CriticLoss:
    """L = E BCE(z_v, y) + E Huber(V_e - y_e), each over its own states; ``target`` gives y_e."""

    target: Target

    def __call__(self, net: Critics, batch: Batch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        logit, _ = net(batch.judged)
        _, value = net(batch.timed)
        viability = F.binary_cross_entropy_with_logits(logit, batch.outcome)
        efficiency = F.huber_loss(value, self.target(net, batch), reduction="sum", delta=HUBER) / max(len(value), 1)
        return viability + efficiency, {"viability": viability, "efficiency": efficiency}
