"""Intervals and paired comparisons for evaluation results. Pure numpy, seeded, vectorised.

Letters: R training seeds, M start states of one training seed, D bootstrap draws. Every interval bounds 95 % unless told otherwise.

The two-level bootstrap (training seeds, then starts within each drawn seed) treats training seeds as the unit that a claim must generalise
over. With two or three training seeds the upper level is itself poorly known, so such intervals are somewhat too narrow; n says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from robowm.errors import UserError
from robowm.types import EvalPair, EvalRow

DRAWS = 10_000
CONFIDENCE = 0.95
SMALL_SAMPLE = 100  # fewer starts than this are called a small sample (a rate near one half is then known to +- 10 points at best)
_BLOCK = 4_000_000  # most counts held at a time while drawing

Outcomes = Mapping[int, Mapping[int, float]]  # {training seed: {start seed: value}}


@dataclass(frozen=True)
class Interval:
    """An estimate with its bounds; ``n`` counts what was averaged."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class PairedDifference:
    """Mean of a - b over pairs, the shares of pairs that a won and lost (ties count for neither) and the sign test's p over them."""

    diff: float
    low: float
    high: float
    n: int
    wins: float
    losses: float
    p_sign: float


def wilson(successes: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the share ``successes / n`` with Wilson's score interval (Wilson 1927), which stays honest at 0 and n successes."""
    if n < 1:
        raise UserError(f"an interval needs at least one episode, found {n}; run more episodes")
    if not 0 <= successes <= n:
        raise UserError(f"found {successes} successes in {n} episodes; successes must lie between 0 and the number of episodes")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == n else min(1.0, middle + half)
    return Interval(share, low, high, n)


def bootstrap_mean(values: np.ndarray | Sequence[float], *, seed: int, draws: int = DRAWS, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of ``values`` [M] with its percentile bootstrap interval."""
    return two_level_bootstrap([values], seed=seed, draws=draws, confidence=confidence)


def two_level_bootstrap(
    values: Sequence[np.ndarray | Sequence[float]], *, seed: int, draws: int = DRAWS, confidence: float = CONFIDENCE
) -> Interval:
    """Return the mean over training seeds of the mean over starts, with its percentile interval over seeds, then starts.

    ``values``: R rows, one per training seed, each with its M starts (M may differ). Each draw takes R training seeds with replacement and,
    afresh for each, M of that seed's starts with replacement. R = 1 is the ordinary bootstrap over starts.
    """
    rows = [_finite(row) for row in values]
    if not rows:
        raise UserError("an interval needs at least one training seed, found none; run an evaluation first")
    rng = np.random.default_rng(seed)
    resampled = np.stack([_resampled_means(row, draws, len(rows), rng) for row in rows])  # [R, D, R]: seed, draw, slot
    chosen = rng.integers(len(rows), size=(draws, len(rows)))  # [D, R] the seed in each slot
    means = resampled[chosen, np.arange(draws)[:, None], np.arange(len(rows))].mean(1)  # [D]
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    value = float(np.mean([row.mean() for row in rows]))
    return Interval(value, min(float(low), value), max(float(high), value), sum(map(len, rows)))


def paired_difference(
    a: Sequence[np.ndarray | Sequence[float]],
    b: Sequence[np.ndarray | Sequence[float]],
    *,
    seed: int,
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
) -> PairedDifference:
    """Compare ``a`` with ``b``, both R rows of M values paired by position (same training seed, same start)."""
    shapes = [[len(row) for row in side] for side in (a, b)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"a paired comparison needs the same starts on both sides, found {shapes[0]} and {shapes[1]} starts per training seed"
        )
    differences = [_finite(x) - _finite(y) for x, y in zip(a, b, strict=True)]
    interval = two_level_bootstrap(differences, seed=seed, draws=draws, confidence=confidence)
    signs = np.sign(np.concatenate(differences))
    wins, losses = int((signs > 0).sum()), int((signs < 0).sum())
    n = interval.n
    return PairedDifference(interval.value, interval.low, interval.high, n, wins / n, losses / n, sign_test(wins, losses))


def sign_test(wins: int, losses: int) -> float:
    """Return the exact two-sided p of ``wins`` against ``losses`` under a fair coin (ties dropped); 1 when nothing differs."""
    n, fewer = wins + losses, min(wins, losses)
    ways = term = 1
    for k in range(1, fewer + 1):
        term = term * (n - k + 1) // k
        ways += term
    return min(1.0, 2 * ways / (1 << n)) if n else 1.0


def outcome_row(task: str, arm: str, metric: str, outcomes: Outcomes, *, seed: int = 0) -> EvalRow:
    """Return one row of results: the mean of ``outcomes`` over (training seed, start) pairs.

    Shares of 0/1 outcomes get Wilson's interval with one training seed, or when all outcomes are equal (a bootstrap would claim certainty
    there); everything else gets the two-level bootstrap.
    """
    rows = [np.array(list(starts.values()), float) for starts in outcomes.values()]
    pooled = np.concatenate(rows) if rows else np.zeros(0)
    binary = bool(np.isin(pooled, (0.0, 1.0)).all())
    if len(pooled) == 0 or (binary and (len(rows) == 1 or len(np.unique(pooled)) == 1)):
        interval = wilson(int(pooled.sum()), len(pooled))
    else:
        interval = two_level_bootstrap(rows, seed=seed)
    return EvalRow(task, arm, metric, interval.value, interval.low, interval.high, interval.n)


def outcome_pair(task: str, a: str, b: str, metric: str, outcomes_a: Outcomes, outcomes_b: Outcomes, *, seed: int = 0) -> EvalPair:
    """Return the paired difference a - b over identical (training seed, start) pairs; refuses sides that ran different ones.

    An arm without training (one training seed only, such as an expert) is paired with every training seed of the other side.
    """
    outcomes_a, outcomes_b = _spread(outcomes_a, outcomes_b), _spread(outcomes_b, outcomes_a)
    if set(outcomes_a) != set(outcomes_b):
        raise UserError(
            f"{task}: {a} has training seeds {sorted(outcomes_a)}, {b} has {sorted(outcomes_b)}; evaluate both on the same seeds"
        )
    for train_seed, starts in outcomes_a.items():
        if odd := set(starts) ^ set(outcomes_b[train_seed]):
            raise UserError(
                f"{task}: {a} and {b} (training seed {train_seed}) differ in {len(odd)} starts, first {min(odd)}; evaluate the same starts"
            )
    sides = [[[side[r][s] for s in sorted(side[r])] for r in sorted(side)] for side in (outcomes_a, outcomes_b)]
    pair = paired_difference(*sides, seed=seed)
    return EvalPair(task, a, b, metric, pair.diff, pair.low, pair.high, pair.n, pair.wins, pair.losses, pair.p_sign)


def _spread(one: Outcomes, other: Outcomes) -> Outcomes:
    """Repeat a single training seed's outcomes for each training seed of ``other``."""
    if len(one) == 1 and len(other) > 1:
        starts = next(iter(one.values()))
        return dict.fromkeys(other, starts)
    return one


def _resampled_means(values: np.ndarray, draws: int, slots: int, rng: np.random.Generator) -> np.ndarray:
    """Return [D, slots] means of M values drawn with replacement, through counts per distinct value."""
    distinct, counts = np.unique(values, return_counts=True)
    total = draws * slots
    means = np.empty(total)
    block = max(1, _BLOCK // len(distinct))
    for first in range(0, total, block):
        size = min(block, total - first)
        means[first : first + size] = rng.multinomial(len(values), counts / len(values), size) @ distinct / len(values)
    return means.reshape(draws, slots)


def _finite(values: np.ndarray | Sequence[float]) -> np.ndarray:
    row = np.asarray(values, float)
    if row.ndim != 1 or len(row) == 0:
        raise UserError(f"an interval needs a row of at least one value, found shape {row.shape}; run more episodes")
    if not np.isfinite(row).all():
        raise UserError(f"{int((~np.isfinite(row)).sum())} of {len(row)} values are not finite; leave unjudged episodes out first")
    return row
