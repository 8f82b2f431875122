"""Other ways to weigh steps, by what was recorded or by the same critics, to compare HABC with: pure functions like ``weights.habc``."""

from __future__ import annotations

import torch

from robowm.errors import UserError
from robowm.habc.credit import Role
from robowm.habc.weights import Steps, Weights, asked, asked_advantage, gate_argument, normalised


def filtered(steps: Steps) -> Weights:
    """Filtered cloning: what failed is left out, all else counts alike. HABC is this where every advantage is zero."""
    raw = torch.ones(len(steps.role))
    raw[steps.role == Role.FAILURE] = 0.0
    return Weights(normalised(raw, steps), {})


def shown(steps: Steps, *, keeps_total: bool = False) -> Weights:
    """Cloning of demonstrations and people's steps alone, all alike: what HG-DAgger (Kelly et al., arXiv 1810.02890) trains on.

    With ``keeps_total`` people's steps get the weight that the policy's lose, so that a store keeps its share of a batch's loss.
    """
    weight = (steps.valid & ((steps.role == Role.DEMO) | (steps.role == Role.HUMAN))).float()
    if not weight.any():
        raise UserError("weighting=shown found neither demonstrations nor steps of people; weigh stores that hold some")
    numbers = {"interventions": float((steps.valid & (steps.role == Role.HUMAN)).sum())}
    return Weights(normalised(weight, steps) if keeps_total else weight, numbers)


def awr(steps: Steps, *, beta: float = 1.0, cap: float = 20.0) -> Weights:
    """Advantage-weighted regression (Peng et al., arXiv 1910.00177, eq. 12): exp(A / beta), at most ``cap``, on all but demonstrations.

    A is the gate's argument at temperature 1, so that only the map from advantage to weight differs from HABC, and that outcomes do not
    count by themselves.
    """
    if not (beta > 0 and cap > 0):
        raise UserError(f"weighting.beta={beta}, weighting.cap={cap}; both must be above 0")
    raw = torch.exp(gate_argument(asked(steps, "awr"), beta))
    raw = torch.where(steps.role == Role.DEMO, 1.0, raw)
    capped = (raw > cap)[steps.online]
    return Weights(normalised(raw.clamp_max(cap), steps), {"clipped": float(capped.float().mean()) if capped.numel() else 0.0})


def iql(steps: Steps, *, beta: float = 10.0, cap: float = 100.0) -> Weights:
    """Implicit Q-learning (Kostrikov et al., arXiv 2110.06169, eq. 7): exp(beta (Q - V)), at most ``cap``, on everything.

    ``beta`` 10 is the paper's for tasks whose only reward is success.
    """
    if not (beta > 0 and cap > 0):
        raise UserError(f"weighting.beta={beta}, weighting.cap={cap}; both must be above 0")
    raw = torch.exp(beta * asked_advantage(steps, "iql"))
    capped = (raw > cap)[steps.valid]
    numbers = {"clipped": float(capped.float().mean()) if capped.numel() else 0.0}
    return Weights(normalised(raw.clamp_max(cap), steps), numbers)


def recap(steps: Steps, *, positive: float = 0.4) -> Weights:
    """RECAP (Amin et al. 2025): nothing is weighed; a step is marked as better than usual where its advantage lies in the upper share
    ``positive`` of the policy's steps, and always where people acted or demonstrated. A policy trained with it is conditioned on the mark.
    """
    if not 0 < positive < 1:
        raise UserError(f"weighting.positive={positive}; it must lie between 0 and 1")
    advantage = asked_advantage(steps, "recap")
    people = (steps.role == Role.DEMO) | (steps.role == Role.HUMAN)
    judged = advantage[steps.valid & ~people]
    threshold = float(judged.quantile(1 - positive)) if judged.numel() else 0.0
    improved = (people | (advantage > threshold)).long()
    numbers = {"threshold": threshold, "improved": float(improved[steps.valid].float().mean()) if steps.valid.any() else 0.0}
    return Weights(steps.valid.float(), numbers, improved)


def iwr(steps: Steps) -> Weights:
    """Intervention-weighted regression (Mandlekar et al., arXiv 2012.06733): people's corrections get half of the total, all else the rest.

    An intervention weighs (N - n_int) / n_int and anything else 1, where N counts every valid step. Outcomes do not count.
    """
    human = steps.valid & (steps.role == Role.HUMAN)
    count = int(human.sum())
    weight = steps.valid.float()
    if count:
        weight[human] = (int(steps.valid.sum()) - count) / count
    return Weights(weight, {"interventions": float(count)})


def sirius(steps: Steps, *, intervention: float = 0.5, before: int = 15, before_share: float = 0.002) -> Weights:
    """Sirius (Liu et al., arXiv 2211.08416): each class of step weighs its target share over its actual share.

    Targets: people's corrections ``intervention``, demonstrations as many as there are, the ``before`` steps before a take-over
    ``before_share``, the policy's other steps what is left. A class without steps leaves its share to the policy's others.
    """
    if not (0 <= intervention <= 1 and 0 <= before_share <= 1 and before >= 0):
        raise UserError(
            f"weighting.intervention={intervention}, weighting.before_share={before_share}, weighting.before={before}; "
            "shares lie in [0, 1], steps are at least 0"
        )
    total = max(int(steps.valid.sum()), 1)
    human, demo = (steps.valid & (steps.role == role) for role in (Role.HUMAN, Role.DEMO))
    leading = steps.valid & (steps.until_takeover <= before)
    rest = steps.valid & ~(human | demo | leading)
    weight = torch.zeros(len(steps.role))
    left = 1.0
    for part, target in ((human, intervention), (demo, float(demo.sum()) / total), (leading, before_share)):
        if part.any():
            weight[part] = target / (float(part.sum()) / total)
            left -= target
    if rest.any():
        weight[rest] = max(left, 0.0) / (float(rest.sum()) / total)
    return Weights(weight, {"interventions": float(human.sum())})
