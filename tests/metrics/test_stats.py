import numpy as np
import pytest

from robowm.errors import UserError
from robowm.metrics import stats


def test_wilson_equals_published_values():
    # Newcombe (1998), table I, method 3: 81/263, 15/148, 0/20, 1/29.
    for successes, n, low, high in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]:
        interval = stats.wilson(successes, n)
        assert interval.low == pytest.approx(low, abs=5e-5) and interval.high == pytest.approx(high, abs=5e-5)
        assert interval.n == n and interval.value == successes / n


def test_wilson_touches_the_ends_exactly():
    assert stats.wilson(0, 7).low == 0.0 and stats.wilson(0, 7).high > 0.2
    assert stats.wilson(7, 7).high == 1.0 and stats.wilson(7, 7).low < 0.8


@pytest.mark.parametrize("successes, n", [(0, 0), (3, 2), (-1, 5)])
def test_wilson_refuses_impossible_counts(successes, n):
    with pytest.raises(UserError):
        stats.wilson(successes, n)


def test_bootstrap_mean_matches_the_normal_interval():
    values = np.random.default_rng(0).normal(3.0, 2.0, 400)
    interval = stats.bootstrap_mean(values, seed=1)
    half = 1.96 * values.std() / 20
    assert interval.value == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.02)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.02)


def test_same_seed_same_interval():
    values = np.random.default_rng(0).normal(size=50)
    assert stats.bootstrap_mean(values, seed=4) == stats.bootstrap_mean(values, seed=4)
    assert stats.bootstrap_mean(values, seed=4) != stats.bootstrap_mean(values, seed=5)


def test_equal_values_give_no_width():
    found = stats.interval(np.array([[2.0] * 5, [2.0] * 3 + [np.nan] * 2]), seed=0)
    assert (found.value, found.low, found.high, found.n) == (2.0, 2.0, 2.0, 8)


def test_the_bootstrap_covers_the_truth_as_often_as_it_says():
    rng, p, hits, runs = np.random.default_rng(7), 0.3, 0, 600
    for run in range(runs):
        interval = stats.bootstrap_mean(rng.random(200) < p, seed=run, draws=400)
        hits += interval.low <= p <= interval.high
    assert 0.92 <= hits / runs <= 0.975


def coverage(interval, runs=400, seeds=10, starts=60, between=0.1, of_start=0.1):
    """How often ``interval`` of outcomes [R, M] holds the truth, where training seeds and the starts that they share both differ."""
    rng, hits = np.random.default_rng(3), 0
    for run in range(runs):
        rates = 0.5 + between * rng.standard_normal((seeds, 1)) + of_start * rng.standard_normal(starts)
        found = interval((rng.random((seeds, starts)) < np.clip(rates, 0, 1)).astype(float), run)
        hits += found.low <= 0.5 <= found.high
    return hits / runs


def crossed(outcomes, run):
    return stats.interval(outcomes, seed=run, draws=400)


def pooled(outcomes, run):
    return stats.bootstrap_mean(outcomes.ravel(), seed=run, draws=400)


def test_the_crossed_bootstrap_covers_differences_between_training_seeds_and_is_a_little_wide():
    assert 0.93 <= coverage(crossed) <= 0.995


def test_the_crossed_bootstrap_covers_differences_between_starts_that_training_seeds_share():
    assert 0.93 <= coverage(crossed, seeds=3, between=0.0, of_start=0.4) <= 0.995


def test_pooling_over_training_seeds_would_cover_too_rarely():
    assert coverage(pooled) < 0.85 and coverage(pooled, seeds=3, between=0.0, of_start=0.4) < 0.9


def test_a_start_moves_with_all_its_training_seeds():
    start = np.random.default_rng(0).normal(size=200)
    one, three = (stats.interval(np.tile(start, (seeds, 1)), seed=1) for seeds in (1, 3))
    assert three.high - three.low == pytest.approx(one.high - one.low, rel=0.05), "three copies of a start tell no more than one"


def test_a_metric_with_gaps_is_averaged_over_what_there_is():
    values = np.array([[[1.0, np.nan], [3.0, np.nan]], [[5.0, 2.0], [np.nan, np.nan]]])
    mean, low, high = stats.crossed_bootstrap(values, seed=0, draws=500)
    np.testing.assert_allclose([mean, low, high], [[3.5, 2.0], [1.0, 2.0], [5.0, 2.0]])
    nothing = stats.crossed_bootstrap(np.full((2, 3, 1), np.nan), seed=0, draws=10)
    assert np.isnan(nothing).all()


def one_seed(*values):
    return {0: dict(enumerate(map(float, values)))}


def test_a_pair_counts_wins_and_losses():
    pair = stats.outcome_pair("t", "a", "b", "success", one_seed(1, 1, 0, 0), one_seed(0, 1, 1, 0))
    assert (pair.diff, pair.n, pair.wins, pair.losses, pair.p) == (0.0, 4, 0.25, 0.25, 1.0)


def test_pairing_is_sharper_than_two_separate_intervals():
    rng = np.random.default_rng(0)
    start = rng.normal(0, 5, 200)
    a, b = start + 1 + 0.1 * rng.normal(size=200), start + 0.1 * rng.normal(size=200)
    pair = stats.outcome_pair("t", "a", "b", "psnr", one_seed(*a), one_seed(*b))
    assert 0.95 < pair.low < 1 < pair.high < 1.05 and pair.wins == 1.0
    assert stats.bootstrap_mean(a, seed=0).low < stats.bootstrap_mean(b, seed=0).high


def test_a_pair_counts_each_start_once_whatever_the_number_of_training_seeds():
    better = {m: float(m < 5) for m in range(6)}
    one, three = (
        stats.outcome_pair(
            "t", "a", "b", "success", dict.fromkeys(range(seeds), better), dict.fromkeys(range(seeds), dict.fromkeys(better, 0.5))
        )
        for seeds in (1, 3)
    )
    assert (three.n, three.wins, three.losses, three.p) == (one.n, one.wins, one.losses, one.p) == (6, 5 / 6, 1 / 6, stats.sign_test(5, 1))
    mixed = {0: {1: 1.0, 2: 1.0, 3: 1.0}, 1: {1: 0.0, 2: 1.0, 3: 0.0}, 2: {1: 0.0, 2: 0.0, 3: 0.0}}
    pair = stats.outcome_pair(
        "t", "a", "b", "success", mixed, {0: dict.fromkeys((1, 2, 3), 0.0), 1: {1: 1, 2: 0, 3: 1}, 2: {1: 1, 2: 0, 3: 0}}
    )
    assert (pair.n, pair.wins, pair.losses) == (3, 1 / 3, 1 / 3), "start 1 is lost, 2 won, 3 even in the mean over training seeds"


def test_sign_test_equals_the_binomial():
    assert stats.sign_test(0, 0) == 1.0
    assert stats.sign_test(5, 0) == 2 / 32
    assert stats.sign_test(1, 9) == stats.sign_test(9, 1) == 22 / 1024
    assert stats.sign_test(4, 4) == 1.0
    assert stats.sign_test(1600, 1400) == pytest.approx(2.8e-4, rel=0.05)


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(UserError, match="1 of 2 values"):
        stats.bootstrap_mean([1.0, float("nan")], seed=0)
    with pytest.raises(UserError, match="at least one value"):
        stats.bootstrap_mean([], seed=0)
    with pytest.raises(UserError, match="at least one value"):
        stats.outcome_row("t", "base", "steps", {0: {1: 4.0}, 1: {}})


def test_rows_of_one_training_seed_use_wilson():
    row = stats.outcome_row("t", "base", "success", {0: {100: 1, 101: 0, 102: 0}})
    expected = stats.wilson(1, 3)
    assert (row.value, row.low, row.high, row.n) == (expected.value, expected.low, expected.high, 3)


def test_rows_of_equal_outcomes_are_not_certain():
    row = stats.outcome_row("t", "never_moves", "success", {r: dict.fromkeys(range(10), 0.0) for r in range(3)})
    assert (row.low, row.high, row.n) == (0.0, stats.wilson(0, 10).high, 30), "ten starts, however often each was run"


def test_rows_without_episodes_are_refused():
    with pytest.raises(UserError, match="at least one episode"):
        stats.outcome_row("t", "base", "success", {})


def test_pairs_are_matched_by_start_not_by_order():
    pair = stats.outcome_pair("t", "a", "b", "success", {0: {1: 1.0, 2: 0.0}}, {0: {2: 0.0, 1: 1.0}})
    assert pair.diff == pair.wins == pair.losses == 0.0


def test_pairs_refuse_different_starts_and_seeds():
    with pytest.raises(UserError, match="differ in 2 starts, first 2"):
        stats.outcome_pair("t", "a", "b", "success", {0: {1: 1.0, 2: 0.0}}, {0: {1: 0.0, 3: 1.0}})
    with pytest.raises(UserError, match="training seeds"):
        stats.outcome_pair("t", "a", "b", "success", {0: {1: 1.0}, 1: {1: 0.0}}, {0: {1: 0.0}, 2: {1: 1.0}})


def test_an_untrained_arm_pairs_with_every_training_seed():
    pair = stats.outcome_pair("t", "expert", "b", "success", {0: {1: 1.0}}, {0: {1: 0.0}, 1: {1: 1.0}})
    assert (pair.n, pair.diff, pair.wins) == (1, 0.5, 1.0)
