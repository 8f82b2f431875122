"""How far a probability can be trusted: confusion, ranking, reliability, and the threshold that reaches a precision. Pure numpy.

``scores`` are floats [n] (larger = surer of success), ``truth`` is bool [n].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robowm.errors import UserError

BINS = 10


@dataclass(frozen=True)
class Confusion:
    """Counts of verdicts against the truth. A ratio without cases is nan."""

    true_positive: int
    false_positive: int
    true_negative: int
    false_negative: int

    @property
    def precision(self) -> float:
        """Share of claimed successes that were real."""
        return _ratio(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> float:
        """Share of real successes that were claimed."""
        return _ratio(self.true_positive, self.true_positive + self.false_negative)

    @property
    def false_success(self) -> float:
        """Share of claimed successes that were failures, 1 - precision."""
        return _ratio(self.false_positive, self.true_positive + self.false_positive)


@dataclass(frozen=True)
class Reliability:
    """Per bin of predicted probability (equal widths over [0, 1]): how often it came true. Empty bins are nan."""

    predicted: np.ndarray  # f64 [bins] mean score
    observed: np.ndarray  # f64 [bins] share true
    count: np.ndarray  # int64 [bins]

    @property
    def expected_calibration_error(self) -> float:
        """Return ECE: the mean |predicted - observed| over cases (Guo et al. 2017, eq. 3)."""
        filled = self.count > 0
        gaps = np.abs(self.predicted[filled] - self.observed[filled])
        return float((gaps * self.count[filled]).sum() / self.count.sum())


def confusion(verdicts: np.ndarray, truth: np.ndarray) -> Confusion:
    """Count ``verdicts`` bool [n] against ``truth`` bool [n]."""
    verdicts, truth = _pair(verdicts, truth, bool)
    return Confusion(
        int((verdicts & truth).sum()), int((verdicts & ~truth).sum()), int((~verdicts & ~truth).sum()), int((~verdicts & truth).sum())
    )


def auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Return the chance that a true case scores above a false one, ties counting half (area under the ROC curve); nan with one class."""
    scores, truth = _pair(scores, truth, float)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if positives == 0 or negatives == 0:
        return float("nan")
    _, where, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # 1-based mean rank of each distinct score
    return float((ranks[where][truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def reliability(scores: np.ndarray, truth: np.ndarray, bins: int = BINS) -> Reliability:
    """Group probabilities into ``bins`` equal bins and compare each with what came true."""
    scores, truth = _pair(scores, truth, float)
    if len(scores) == 0 or scores.min() < 0 or scores.max() > 1:
        raise UserError(f"reliability needs probabilities in [0, 1], found {len(scores)} values; apply the sigmoid first")
    index = np.minimum((scores * bins).astype(int), bins - 1)
    count = np.bincount(index, minlength=bins)
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(index, scores, bins) / count
        observed = np.bincount(index, truth, bins) / count
    return Reliability(predicted, observed, count)


def threshold_for_precision(scores: np.ndarray, truth: np.ndarray, precision: float, *, spare: int = 0) -> float | None:
    """Return the threshold (claim where score >= threshold) with the most recall among those that reach ``precision``, or None.

    ``spare`` false claims are counted on top of those seen: a threshold is picked because it looks good on these cases, so without them
    it falls short on others about every second time. The threshold lies half-way between the lowest claimed score and the next one below.
    """
    scores, truth = _pair(scores, truth, float)
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], np.cumsum(truth[order])
    ends = np.append(ranked[1:] != ranked[:-1], True) if len(ranked) else np.zeros(0, bool)  # a threshold cannot split equal scores
    enough = ends & (hits > 0) & (hits >= precision * (np.arange(1, len(ranked) + 1) + spare) - 1e-9)
    if not enough.any():
        return None
    last = int(np.flatnonzero(enough)[-1])
    below = ranked[last + 1] if last + 1 < len(ranked) else ranked[last]
    middle = float(ranked[last] + below) / 2
    return middle if middle > below else float(ranked[last])


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _pair(values: np.ndarray, truth: np.ndarray, kind: type) -> tuple[np.ndarray, np.ndarray]:
    values, truth = np.asarray(values, kind), np.asarray(truth, bool)
    if values.shape != truth.shape or values.ndim != 1:
        raise UserError(f"scores {values.shape} and truth {truth.shape} must be rows of equal length")
    return values, truth
