"""Which imagined episodes are worth training on. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

KEPT, NO_SUCCESS, TOO_EARLY, DISAGREE = "kept", "no success", "success too early", "noise draws disagree"


def decide(confirmed: int | None, min_steps: int, agrees: bool | None) -> str:
    """Return ``kept`` or the reason to drop an episode.

    ``confirmed``: the step at which its first success was confirmed, None without one. A success before ``min_steps`` is an artefact of the
    judge or of the model. ``agrees``: the same actions succeed under a second noise draw of the world model too (RAW-Dream, arXiv
    2605.12334, dual-noise verification); None where that was not asked.
    """
    if confirmed is None:
        return NO_SUCCESS
    if confirmed < min_steps:
        return TOO_EARLY
    return DISAGREE if agrees is False else KEPT


def count(reasons: Sequence[str]) -> dict[str, int]:
    """Return how many episodes met each fate."""
    counts = Counter(reasons)
    return {reason: counts[reason] for reason in (KEPT, NO_SUCCESS, TOO_EARLY, DISAGREE)}
