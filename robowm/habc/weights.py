"""From what two critics say of the states along an episode to how much each step is imitated. Pure functions.

    N steps of all episodes, T of one, n steps of an executed chunk

HABC (arXiv 2606.17043), sections "advantage", "gate" and "weights", with these choices where the paper leaves them open: advantages reach
over the executed chunk (or as much of it as lies in the step's segment); V_e counts in chunks; z_v is cut off at +-5; a window in which
the goal is reached has A_v = 0 and V_e = 0 at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robowm.errors import UserError, nearest
from robowm.habc.credit import Role
from robowm.policy.losses import effective_share

LOGIT = 5.0  # largest |z_v|: beyond it a sigmoid says nothing new, and differences are noise
SATURATED = 2.0  # |argument| at which tanh is .96


@dataclass(frozen=True)
class Values:
    """What critics say of N steps."""

    viability: Tensor  # f32 [N], p_v before the step
    a_v: Tensor  # f32 [N], gain of logit over the window
    a_e: Tensor  # f32 [N], chunks gained over the window
    clipped: float  # share of logits that were cut off
    successes: int  # episodes that efficiency was learned from


@dataclass(frozen=True)
class Steps:
    """What is known of N steps of all stores together."""

    role: Tensor  # int64 [N], values of Role
    until_takeover: Tensor  # int64 [N], see credit.py
    valid: Tensor  # bool [N], False for steps that are dropped (a margin before take-overs)
    values: Values | None = None  # None: no critics were asked
    advantage: Tensor | None = None  # f32 [N], of a rival's own critic (value_critics.py)

    @property
    def online(self) -> Tensor:
        """bool [N]: valid steps that are no demonstration."""
        return self.valid & (self.role != Role.DEMO)


@dataclass(frozen=True)
class Weights:
    """A weight for each step and what to log of it."""

    weight: Tensor  # f32 [N], at least 0
    numbers: dict[str, float]
    improved: Tensor | None = None  # int64 [N], 1 / 0: what a conditioned policy is told of each step


Weighting = Callable[[Steps], Weights]


def clip_logit(logit: Tensor) -> tuple[Tensor, float]:
    """Return z_v cut off at +-5, and the share that was."""
    return logit.clamp(-LOGIT, LOGIT), float((logit.abs() > LOGIT).float().mean()) if len(logit) else 0.0


def advantages(logit: Tensor, value: Tensor, span: Tensor, arrives: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """Return A_v and A_e f32 [T] of an episode from ``logit`` and ``value`` f32 [T + 1] of its states.

    A_v = z_v(s[t + m]) - z_v(s[t]), A_e = -m / n + V_e(s[t + m]) - V_e(s[t]) over windows of m = ``span`` int64 [T] of n = ``chunk`` steps.
    Where a window ``arrives`` bool [T] at the goal, V_e is 0 there and A_v is 0; after it (m = 0) both are 0.
    """
    now = torch.arange(len(span))
    after = now + span
    a_v = torch.where(arrives, 0.0, logit[after] - logit[now])
    a_e = -span / chunk + torch.where(arrives, 0.0, value[after]) - value[now]
    return a_v, torch.where(span == 0, 0.0, a_e)


def gate_argument(values: Values, temperature: float, viability: float = 1.0, efficiency: float = 1.0) -> Tensor:
    """Return ((1 - p) A_v + p A_e) / temperature f32 [N], detached: far from success what counts is to become viable, near it to be fast.

    ``viability`` and ``efficiency`` scale the two halves.
    """
    p = values.viability
    return ((viability * (1 - p) * values.a_v + efficiency * p * values.a_e) / temperature).detach()


def gate(argument: Tensor) -> Tensor:
    """Return g = 1 + tanh(argument) in (0, 2) (paper, section "gate"), detached."""
    return (1 + torch.tanh(argument)).detach()


def habc(
    steps: Steps,
    *,
    temperature: float = 0.25,
    viability: float = 1.0,
    efficiency: float = 1.0,
    gated: Sequence[str] = ("success",),
    min_successes: int = 10,
) -> Weights:
    """Return the paper's weights: g for the policy's steps in successes, 0 in failures, 1 for everything else, then ``normalised``.

    ``gated`` names the roles whose steps weigh g instead: success, human, assisted (guided or imagined successes), demo. With fewer than
    ``min_successes`` episodes behind V_e, A_e counts as 0.
    """
    values = asked(steps, "habc")
    if not temperature > 0:
        raise UserError(f"weighting.temperature={temperature}; it must be above 0")
    enough = values.successes >= min_successes
    argument = gate_argument(values, temperature, viability, efficiency if enough else 0.0)
    open_to = torch.isin(steps.role, torch.tensor([_role(name) for name in gated])) & steps.valid
    raw = torch.where(open_to, gate(argument), 1.0)
    raw = torch.where(steps.role == Role.FAILURE, 0.0, raw)
    numbers = {
        "saturated": _share((argument.abs() > SATURATED)[open_to]),
        "clipped": values.clipped,
        "mean_gate": float(gate(argument)[open_to].mean()) if open_to.any() else 1.0,
        "efficiency_counts": float(enough),
    }
    return Weights(normalised(raw, steps), numbers)


def normalised(raw: Tensor, steps: Steps) -> Tensor:
    """Return ``raw`` f32 [N] divided by its mean over the valid online steps, demonstrations by their own; dropped steps get 0.

    So both keep the total that they have in plain cloning, and demonstrations of weight 1 stay at 1 (paper, Algorithm 1).
    """
    if not (torch.isfinite(raw) & (raw >= 0)).all():
        raise UserError(f"raw weights run from {float(raw.min())} to {float(raw.max())}; they must be finite and at least 0")
    weight = torch.zeros_like(raw)
    for part in (steps.online, steps.valid & (steps.role == Role.DEMO)):
        if part.any():
            weight[part] = raw[part] / raw[part].mean().clamp_min(torch.finfo(raw.dtype).eps)
    return weight


def summary(steps: Steps, weight: Tensor) -> dict[str, float]:
    """Return what tells whether ``weight`` f32 [N] still leaves enough to learn from: effective sample size, and means by role."""
    share = float(effective_share(steps.valid, weight))
    found = {"steps": float(len(weight)), "dropped": _share(~steps.valid), "effective_share": share}
    found["effective_steps"] = share * float(steps.valid.sum())
    found["largest"] = float(weight.max())
    for role in Role:
        own = steps.valid & (steps.role == role)
        if own.any():
            found[f"mean_{role.name.lower()}"] = float(weight[own].mean())
    return found


def asked(steps: Steps, name: str) -> Values:
    """Return what the critics say; UserError where none were given."""
    if steps.values is None:
        raise UserError(f"weighting={name} weighs by what critics say; give critics=<folder of train-critics critic=habc>")
    return steps.values


def asked_advantage(steps: Steps, name: str) -> Tensor:
    """Return what a rival's critic says f32 [N]; UserError where none was given."""
    if steps.advantage is None:
        raise UserError(f"weighting={name} weighs by a critic of its own; give critics=<folder of train-critics critic={name}>")
    return steps.advantage


def _role(name: str) -> Role:
    known = [role.name.lower() for role in Role if role != Role.FAILURE]
    if name not in known:
        raise UserError(f"weighting.gated names {name!r}; {nearest(str(name), known)}")
    return Role[name.upper()]


def _share(chosen: Tensor) -> float:
    return float(chosen.float().mean()) if chosen.numel() else 0.0
