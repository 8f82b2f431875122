"""Intervals and paired comparisons for evaluation results. Pure numpy, seeded, vectorised.

Letters: R training seeds, M start states, K metrics, D bootstrap draws. Every interval bounds 95 % unless told otherwise.

What is resampled: start states, each with its outcomes of every training seed, since all training seeds run the same starts; and, where
there are several, training seeds, over which a claim must generalise. Both are drawn at once (crossed, the pigeonhole bootstrap: Owen,
2007), which takes noise that belongs to neither for a little more than it is. With two or three training seeds that level is itself
poorly known, so such intervals may still be too narrow. A sign test counts each start once, by the sign of its mean difference over
training seeds.
"""

from __future__ import annotations

import math
import warnings
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

Outcomes = Mapping[int, Mapping[int, float]]  # {training seed: {start seed: value}}; equal start seeds are the same start


@dataclass(frozen=True)
class Interval:
    """An estimate with its bounds; ``n`` counts what was averaged."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Signs:
    """Of ``n`` starts, how many have a mean difference over training seeds above and below zero; ``p`` is their sign test's."""

    n: int
    wins: int
    losses: int
    p: float


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
    return interval(_finite(values)[None], seed=seed, draws=draws, confidence=confidence)


def crossed_bootstrap(
    values: np.ndarray, *, seed: int, draws: int = DRAWS, confidence: float = CONFIDENCE
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, low and high f64 [K] of ``values`` f64 [R, M, K], nan where a training seed has no value of a start.

    The mean is over training seeds of their means over starts. Each draw takes M starts with replacement, the same for every training seed,
    and R training seeds with replacement; R = 1 is the ordinary bootstrap over starts. nan where a metric has no value at all.
    """
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    rng = np.random.default_rng(seed)
    means = np.empty((draws, values.shape[2]))
    block = max(1, _BLOCK // values.shape[1])
    with np.errstate(invalid="ignore"):  # 0 / 0: a training seed without a value in a draw, or a draw without any
        for first in range(0, draws, block):
            size = min(block, draws - first)
            starts, seeds = (_drawn(rng, size, values.shape[axis]) for axis in (1, 0))  # [D, M], [D, R] how often each
            sums, counts = (np.tensordot(starts, side, (1, 1)) for side in (filled, known.astype(float)))  # [D, R, K]
            of_seed = np.where(counts > 0, sums / counts, 0.0)
            means[first : first + size] = (seeds[:, :, None] * of_seed).sum(1) / (seeds[:, :, None] * (counts > 0)).sum(1)
        counts = known.sum(1)  # [R, K]
        value = np.where(counts > 0, filled.sum(1) / counts, 0.0).sum(0) / (counts > 0).sum(0)
    tail = (1 - confidence) / 2
    with warnings.catch_warnings(action="ignore"):  # metrics without any value
        low, high = np.nanquantile(means, [tail, 1 - tail], axis=0)
    return value, np.minimum(low, value), np.maximum(high, value)


def interval(values: np.ndarray, *, seed: int, draws: int = DRAWS, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of ``values`` f64 [R, M] with its crossed bootstrap; ``n`` counts (training seed, start) pairs, nan is none."""
    mean, low, high = crossed_bootstrap(values[:, :, None], seed=seed, draws=draws, confidence=confidence)
    return Interval(float(mean[0]), float(low[0]), float(high[0]), int(np.isfinite(values).sum()))


def signs_of(differences: np.ndarray) -> Signs:
    """Return the signs of ``differences`` f64 [R, M], each start once whatever the number of training seeds; one of nan alone is none."""
    known = np.isfinite(differences)
    total = np.where(known, differences, 0.0).sum(0)  # has the sign of the mean
    wins, losses = int((total > 0).sum()), int((total < 0).sum())
    return Signs(int(known.any(0).sum()), wins, losses, sign_test(wins, losses))


def sign_test(wins: int, losses: int) -> float:
    """Return the exact two-sided p of ``wins`` against ``losses`` under a fair coin (ties dropped); 1 when nothing differs."""
    n, fewer = wins + losses, min(wins, losses)
    ways = term = 1
    for k in range(1, fewer + 1):
        term = term * (n - k + 1) // k
        ways += term
    return min(1.0, 2 * ways / (1 << n)) if n else 1.0


def outcome_row(task: str, arm: str, metric: str, outcomes: Outcomes, *, seed: int = 0) -> EvalRow:
    """Return one row of results: the mean of ``outcomes``, its interval over starts and training seeds; n counts pairs of both.

    Shares of 0/1 outcomes get Wilson's interval over starts with one training seed, or when all outcomes are equal (a bootstrap would claim
    certainty there); everything else gets the crossed bootstrap.
    """
    values = _grid(outcomes)
    known = values[np.isfinite(values)]
    binary = bool(np.isin(known, (0.0, 1.0)).all())
    if binary and (len(values) <= 1 or len(np.unique(known)) == 1):
        starts = values.shape[1]
        share = wilson(round(np.nanmean(values) * starts) if starts else 0, starts)
        found = Interval(share.value, share.low, share.high, len(known))
    else:
        found = interval(values, seed=seed)
    return EvalRow(task, arm, metric, found.value, found.low, found.high, found.n)


def outcome_pair(task: str, a: str, b: str, metric: str, outcomes_a: Outcomes, outcomes_b: Outcomes, *, seed: int = 0) -> EvalPair:
    """Return the paired difference a - b over identical (training seed, start) pairs; refuses sides that ran different ones.

    The interval is over starts and training seeds (crossed bootstrap of the differences); n, wins, losses and p count each start once.
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
    differences = _grid(outcomes_a) - _grid(outcomes_b)
    found, signs = interval(differences, seed=seed), signs_of(differences)
    shares = (signs.wins / signs.n, signs.losses / signs.n)
    return EvalPair(task, a, b, metric, found.value, found.low, found.high, signs.n, *shares, signs.p)


def _spread(one: Outcomes, other: Outcomes) -> Outcomes:
    """Repeat a single training seed's outcomes for each training seed of ``other``."""
    if len(one) == 1 and len(other) > 1:
        starts = next(iter(one.values()))
        return dict.fromkeys(other, starts)
    return one


def _grid(outcomes: Outcomes) -> np.ndarray:
    """Return f64 [R, M] in the order of training and start seeds, nan where a training seed did not run a start."""
    starts = {start: m for m, start in enumerate(sorted(set().union(*outcomes.values())))}
    grid = np.full((len(outcomes), len(starts)), np.nan)
    for r, train_seed in enumerate(sorted(outcomes)):
        row = outcomes[train_seed]
        numbers = np.array(list(row.values()), float)
        grid[r, [starts[start] for start in row]] = _finite(numbers)
    return grid


def _drawn(rng: np.random.Generator, draws: int, count: int) -> np.ndarray:
    """Return f64 [D, count], how often each of ``count`` things is taken in as many draws with replacement."""
    taken = rng.integers(count, size=(draws, count)) + count * np.arange(draws)[:, None]
    return np.bincount(taken.ravel(), minlength=draws * count).reshape(draws, count).astype(float)


def _finite(values: np.ndarray | Sequence[float]) -> np.ndarray:
    row = np.asarray(values, float)
    if row.ndim != 1 or len(row) == 0:
        raise UserError(f"an interval needs a row of at least one value, found shape {row.shape}; run more episodes")
    if not np.isfinite(row).all():
        raise UserError(f"{int((~np.isfinite(row)).sum())} of {len(row)} values are not finite; leave unjudged episodes out first")
    return row
