import numpy as np
import pytest

from robowm.errors import UserError
from robowm.metrics import calibration


def test_confusion_counts_by_hand():
    found = calibration.confusion([1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 1])
    assert (found.true_positive, found.false_positive, found.true_negative, found.false_negative) == (2, 1, 2, 1)
    assert found.precision == found.recall == 2 / 3 and found.false_success == pytest.approx(1 / 3)


def test_ratios_without_cases_are_nan():
    found = calibration.confusion([0, 0], [0, 0])
    assert np.isnan(found.precision) and np.isnan(found.recall) and np.isnan(found.false_success)


def test_auc_is_the_share_of_ordered_pairs():
    rng = np.random.default_rng(0)
    scores, truth = rng.integers(0, 6, 60) / 5, rng.random(60) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[truth] for b in scores[~truth]]
    assert calibration.auc(scores, truth) == pytest.approx(np.mean(pairs))
    assert calibration.auc([0.1, 0.9], [0, 1]) == 1 and calibration.auc([0.1, 0.9], [1, 0]) == 0
    assert np.isnan(calibration.auc([0.1, 0.9], [1, 1]))


def test_reliability_of_a_calibrated_and_an_overconfident_score():
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    truth = rng.random(20_000) < p
    good = calibration.reliability(p, truth)
    assert good.count.sum() == 20_000 and good.expected_calibration_error < 0.02
    bad = calibration.reliability(np.where(p > 0.5, 1.0, 0.0), truth)
    assert bad.expected_calibration_error == pytest.approx(0.25, abs=0.02)
    assert np.isnan(bad.predicted[5]) and bad.count[9] + bad.count[0] == 20_000


def test_reliability_refuses_logits():
    with pytest.raises(UserError, match="probabilities"):
        calibration.reliability([3.0, -1.0], [1, 0])


def test_the_threshold_reaches_its_precision_with_most_recall():
    scores = np.array([0.95, 0.9, 0.8, 0.7, 0.6, 0.5])
    truth = np.array([1, 1, 0, 1, 1, 0], bool)
    assert calibration.threshold_for_precision(scores, truth, 1.0) == pytest.approx(0.85)
    assert calibration.threshold_for_precision(scores, truth, 0.8) == pytest.approx(0.55)
    assert calibration.threshold_for_precision(scores, truth, 0.5) == 0.5
    assert calibration.threshold_for_precision(scores, np.zeros(6), 0.5) is None
    assert calibration.threshold_for_precision([], [], 0.5) is None


def test_spare_false_claims_make_the_threshold_careful():
    scores = np.linspace(1, 0, 41)
    truth = np.arange(41) < 30
    truth[20] = False
    assert calibration.threshold_for_precision(scores, truth, 0.95) == pytest.approx(scores[29:31].mean())
    assert calibration.threshold_for_precision(scores, truth, 0.95, spare=1) == pytest.approx(scores[19:21].mean())
    assert calibration.threshold_for_precision(scores, truth, 0.95, spare=2) is None


def test_the_threshold_never_splits_equal_scores():
    assert calibration.threshold_for_precision([0.9, 0.9, 0.1], [1, 0, 0], 0.9) is None
    rng = np.random.default_rng(1)
    for _ in range(50):
        scores, truth = np.round(rng.random(30), 1), rng.random(30) < 0.6
        threshold = calibration.threshold_for_precision(scores, truth, 0.7)
        if threshold is not None:
            assert calibration.confusion(scores >= threshold, truth).precision >= 0.7


def test_shapes_must_agree():
    with pytest.raises(UserError, match="equal length"):
        calibration.auc([0.1], [1, 0])
