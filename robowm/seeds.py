"""Who may start episodes from which seeds. Fixed ranges, so that no stage trains on, or tunes against, what another measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from robowm.errors import UserError, nearest

Purpose = Literal["demonstrations", "rollouts", "tuning", "validation", "evaluation"]

SEED_RANGES: dict[str, range] = {
    "demonstrations": range(10_000),
    "rollouts": range(10_000, 50_000),  # rollouts, interventions and the start states of imagined episodes
    "tuning": range(50_000, 60_000),
    "validation": range(60_000, 70_000),  # thresholds, early stops
    "evaluation": range(100_000, 110_000),  # published runs alone
}


def check_seeds(purpose: str, seeds: Sequence[int]) -> None:
    """Refuse ``seeds`` outside the range of ``purpose``, and repeated ones."""
    if purpose not in SEED_RANGES:
        raise UserError(f"unknown seed purpose {purpose!r}; {nearest(purpose, SEED_RANGES)}")
    allowed = SEED_RANGES[purpose]
    if outside := [int(seed) for seed in seeds if int(seed) not in allowed]:
        raise UserError(
            f"{purpose} seeds lie in {allowed.start}..{allowed.stop - 1}, found {len(outside)} outside, first {outside[0]}; "
            f"choose first_seed and the number of episodes so that all fit"
        )
    if len(set(seeds)) != len(seeds):
        raise UserError(f"{purpose} seeds repeat: {len(seeds)} given, {len(set(seeds))} distinct; each start runs once")


def purpose_of(seed: int) -> str | None:
    """Return the purpose whose range holds ``seed``, or None."""
    return next((purpose for purpose, allowed in SEED_RANGES.items() if seed in allowed), None)
