"""Critics of two rivals of HABC, each with one value for everything: IQL's and RECAP's. Both learn from all episodes, whoever acted.

    N steps of all episodes, B of a batch, D entries of a latent, A of an action, n steps of an executed chunk, K = 201 bins

Time is counted in windows of n steps, cut where the goal holds first or the episode ends. An episode that ends without success is over:
what comes after it is worth as much as failing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robowm.errors import UserError
from robowm.nn.mlp import ResidualMlp

BINS = 201  # of RECAP's returns over [-1, 0]


@dataclass(frozen=True)
class Moves:
    """N steps and what became of them."""

    now: Tensor  # f32 [N, D] latent before the step
    action: Tensor  # f32 [N, n A] normalised actions of the window, the last repeated beyond an episode's end
    after: Tensor  # f32 [N, D] latent at the end of the window
    span: Tensor  # f32 [N] steps of the window, 0 once the goal has held
    arrives: Tensor  # bool [N] the goal holds at its end
    over: Tensor  # bool [N] the episode ends there without success
    togo: Tensor  # f32 [N] steps until success, infinite without

    def __len__(self) -> int:
        return len(self.now)

    def rows(self, chosen: Tensor) -> Moves:
        """Return the moves ``chosen`` int64 [B]."""
        return Moves(**{name: value[chosen] for name, value in vars(self).items()})


class Method(Protocol):
    """A rival: ``Iql``, ``Recap``."""

    def build(self, size: int, action_size: int, chunk: int, width: int, depth: int, dropout: float) -> nn.Module: ...

    def loss(self, net: nn.Module, batch: Moves) -> dict[str, Tensor]:
        """Return its terms, whose sum is to be minimised."""
        ...

    def advantage(self, net: nn.Module, moves: Moves) -> Tensor:
        """Return f32 [N]."""
        ...


class QAndV(nn.Module):
    """Two estimates of Q(s, a) and one of V(s)."""

    def __init__(self, size: int, action_size: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.q = nn.ModuleList(ResidualMlp(size + action_size, 1, width, depth, dropout) for _ in range(2))
        self.v = ResidualMlp(size, 1, width, depth, dropout)

    def of_actions(self, moves: Moves) -> tuple[Tensor, Tensor]:
        """Return both Q f32 [N]."""
        first, second = (q(torch.cat([moves.now, moves.action], -1)).squeeze(-1) for q in self.q)
        return first, second

    def of_states(self, latent: Tensor) -> Tensor:
        """Return V f32 [N]."""
        return self.v(latent).squeeze(-1)


@dataclass(frozen=True)
class Iql:
    """Implicit Q-learning (Kostrikov et al., arXiv 2110.06169): reward 1 at success, discounted per step.

    L_V = E |tau - 1(Q - V < 0)| (Q - V)^2 (eq. 5) and L_Q = E (r + gamma^m V(s') - Q)^2 (eq. 6) over windows of m steps; each side sees the
    other without gradient, which takes the place of a slowly averaged Q.
    """

    discount: float = 0.98
    expectile: float = 0.7

    def __post_init__(self) -> None:
        if not (0 < self.discount < 1 and 0 < self.expectile < 1):
            raise UserError(f"method.discount={self.discount}, method.expectile={self.expectile}; both must lie between 0 and 1")

    def build(self, size: int, action_size: int, chunk: int, width: int, depth: int, dropout: float) -> QAndV:
        """See Method."""
        return QAndV(size, action_size, width, depth, dropout)

    def loss(self, net: QAndV, batch: Moves) -> dict[str, Tensor]:
        """See Method."""
        q, v = net.of_actions(batch), net.of_states(batch.now)
        gap = torch.minimum(*q).detach() - v
        value = (torch.where(gap < 0, 1 - self.expectile, self.expectile) * gap**2).mean()
        with torch.no_grad():
            ahead = torch.where(batch.arrives, 1.0, torch.where(batch.over, 0.0, net.of_states(batch.after)))
            target = self.discount**batch.span * ahead
        return {"v": value, "q": sum(F.mse_loss(each, target) for each in q)}

    def advantage(self, net: QAndV, moves: Moves) -> Tensor:
        """Return min Q - V, 0 once the goal has held."""
        return torch.where(moves.span == 0, 0.0, torch.minimum(*net.of_actions(moves)) - net.of_states(moves.now))


class Returns(nn.Module):
    """A distribution over returns in [-1, 0]."""

    def __init__(self, size: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.bins = ResidualMlp(size, BINS, width, depth, dropout)
        self.register_buffer("centres", torch.linspace(-1, 0, BINS), persistent=False)

    def mean(self, latent: Tensor) -> Tensor:
        """Return V f32 [N]."""
        return self.bins(latent).softmax(-1) @ self.centres


@dataclass(frozen=True)
class Recap:
    """RECAP's value (Amin et al. 2025, section "value function"): cross-entropy on returns as they came out.

    A success is worth minus its steps to go over ``longest``, a failure -1.
    """

    longest: int = 100  # steps

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise UserError(f"method.longest={self.longest}; it must be at least 1 step")

    def build(self, size: int, action_size: int, chunk: int, width: int, depth: int, dropout: float) -> Returns:
        """See Method."""
        return Returns(size, width, depth, dropout)

    def loss(self, net: Returns, batch: Moves) -> dict[str, Tensor]:
        """See Method."""
        returns = (-batch.togo / self.longest).clamp(-1, 0)
        return {"returns": F.cross_entropy(net.bins(batch.now), ((returns + 1) * (BINS - 1)).round().long())}

    def advantage(self, net: Returns, moves: Moves) -> Tensor:
        """Return the steps taken and V at the window's end minus V now, 0 once the goal has held."""
        ahead = torch.where(moves.arrives, 0.0, torch.where(moves.over, -1.0, net.mean(moves.after)))
        gained = -moves.span / self.longest + ahead - net.mean(moves.now)
        return torch.where(moves.span == 0, 0.0, gained)


def moves_of(latent: np.ndarray, action: np.ndarray, togo: np.ndarray, chunk: int) -> Moves:
    """Return the moves of an episode of T steps: ``latent`` f32 [T + 1, D], ``action`` f32 [T, A] (normalised), ``togo`` int64 [T] (NEVER
    without success, see credit.steps_to_go)."""
    length = len(action)
    times = np.arange(length)
    span = np.minimum(np.minimum(length - times, chunk), togo)
    window = np.minimum(times[:, None] + np.arange(chunk), length - 1)  # [T, n]
    arrives = span == togo
    arrays = {
        "now": latent[times],
        "action": action[window].reshape(length, -1),
        "after": latent[times + span],
        "span": span.astype(np.float32),
        "arrives": arrives,
        "over": (times + span == length) & ~arrives,
        "togo": np.where(togo > length, np.inf, togo).astype(np.float32),
    }
    return Moves(**{name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()})


def joined(parts: list[Moves]) -> Moves:
    """Return the moves of several episodes, one after the other."""
    return Moves(**{name: torch.cat([getattr(part, name) for part in parts]) for name in vars(parts[0])})
