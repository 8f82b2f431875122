"""How closely post-training stays near a reference copy of the model, and when the reference moves. Pure functions.

    G groups, K candidates of each, S metrics that are not the main one

Astrolabe (Zhang et al., arXiv 2603.17051): only candidates about which the rewards disagree are held near the reference, since it is there
that a model learns to please one metric; and the reference follows once the model has moved away from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robowm.errors import UserError

STEP = 1.1  # factor by which the share of disputed candidates moves
SHARES = (0.02, 0.2)  # range of that share


@dataclass(frozen=True)
class Reference:
    """Settings; ``weight`` 0 switches all of it off."""

    weight: float = 0.0  # of the distance to the reference beside the contrastive loss
    share: float = 0.1  # of the candidates that the main metric overrates are held, at the start; without a main metric all are
    limit: float | None = None  # distance at which the reference is set to the model; null: none
    every: int | None = None  # updates after which it is set to the model anyway; null: never

    def __post_init__(self):
        if self.weight < 0 or not SHARES[0] <= self.share <= SHARES[1]:
            raise UserError(f"nft.reference: weight={self.weight}, share={self.share}; use weight >= 0 and a share in {list(SHARES)}")
        for name in ("limit", "every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"nft.reference.{name}={value}; the reference would be the model itself: use null or a number above 0")


def ranks(reward: Tensor) -> Tensor:
    """Return f32 [..., K]: 0 for the lowest reward of a group to K - 1 for the highest."""
    return reward.argsort(dim=-1, stable=True).argsort(dim=-1).float()


def disagreement(main: Tensor, others: Tensor) -> Tensor:
    """Return u [G, K] = rank under ``main`` [G, K] minus the mean rank under ``others`` [S, G, K].

    Above 0: the main metric praises what the others do not. Ranks count upwards, so that this is the sign (the public code counts from the
    best); and within a group, where alone our rewards can be compared.
    """
    return ranks(main) - ranks(others).mean(0)


def disputed(u: Tensor, share: float) -> Tensor:
    """Return bool like ``u``: the ``share`` of its positive entries with the largest disagreement."""
    positive = u[u > 0]
    if positive.numel() == 0:
        return torch.zeros_like(u, dtype=torch.bool)
    return u >= torch.quantile(positive, 1 - share)


def moved_share(share: float, now: float, recent: Tensor) -> float:
    """Return the next share: larger when the mean disagreement ``now`` is above all ``recent`` ones, smaller when below all of them."""
    if len(recent) == 0 or recent.min() <= now <= recent.max():
        return share
    return min(max(share * STEP if now > recent.max() else share / STEP, SHARES[0]), SHARES[1])


def is_due(how: Reference, distance: float, age: int) -> bool:
    """Tell whether the reference is to be set to the model: it is ``distance`` away, or has stood for ``age`` updates."""
    return (how.limit is not None and distance > how.limit) or (how.every is not None and age >= how.every)
