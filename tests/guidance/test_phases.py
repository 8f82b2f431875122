"""Phases come from where and when demonstrations are, and their distances are those that guidance computes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robowm.guidance.phases import PERCENTILES, distances_to_others, find_phases, nearest_others, ordered, quotas, soft_minimum
from robowm.guidance.targets import Targets

SEEN = 3


def demonstrations(count=8, length=30, seed=0):
    """Three places visited one after the other, each for a third of the time."""
    rng = np.random.default_rng(seed)
    places = np.eye(3).repeat(length // 3, 0) * 4
    return [
        np.concatenate([places, places[:, :1]], 1).astype(np.float32) + rng.normal(0, 0.1, (length, 4)).astype(np.float32)
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def found():
    return find_phases(demonstrations(), SEEN, phases=3, prototypes=20, clusters_per_phase=4)


def test_each_place_is_a_phase_in_the_order_of_time(found):
    assert found.prototypes.shape == (3, 20, 4) and found.valid.all()
    assert found.prototypes[..., :3].mean(1).argmax(1).tolist() == [0, 1, 2]
    assert np.all(np.diff(found.starts) > 0.2) and found.starts[0] == 0


def test_thresholds_are_percentiles_of_the_distances_that_guidance_computes(found):
    episodes = demonstrations()
    targets = Targets.of(found, torch.from_numpy(np.concatenate(episodes)), SEEN)
    for phase in range(3):
        distance = []
        for episode in episodes:  # each against the prototypes of the others
            own = (found.prototypes[phase][:, None] == episode[None]).all(-1).any(1)
            others = replace(targets, valid=targets.valid & ~torch.from_numpy(own))
            inside = torch.from_numpy(episode[episode[:, :3].argmax(1) == phase])
            distance.append(others.soft_distance(inside, torch.full((len(inside),), phase)).numpy())
        expected = np.percentile(np.concatenate(distance), PERCENTILES)
        np.testing.assert_allclose(found.percentiles[phase], expected, rtol=1e-3, atol=1e-4)
    assert torch.allclose(targets.threshold(30), torch.from_numpy(found.percentiles[:, 2])) and targets.threshold(None).isinf().all()


def test_a_single_demonstration_is_compared_with_itself():
    rows, prototypes = np.eye(3), np.eye(3)[:2]
    alone = distances_to_others(rows, np.zeros(3, int), prototypes, np.zeros(2, int))
    np.testing.assert_allclose(alone, np.linalg.norm(rows[:, None] - prototypes[None], axis=-1), atol=1e-6)
    apart = distances_to_others(rows, np.array([0, 1, 1]), prototypes, np.array([0, 0]))
    assert apart.shape == (2, 2) and np.isfinite(apart).all()


def test_how_far_demonstrations_are_apart_leaves_their_own_moments_out(found):
    episodes = demonstrations()
    seen = [torch.from_numpy(episode[:, :SEEN]) for episode in episodes]
    own = torch.cdist(seen[0], torch.cat(seen[1:])).min(1).values
    np.testing.assert_allclose(nearest_others([x.numpy() for x in seen])[:30], own, atol=1e-4)
    assert found.unlike(None) == -np.inf and 0 < found.unlike(10) < found.unlike(90) <= found.apart.max()


def test_a_phase_with_few_moments_repeats_prototypes_that_do_not_count():
    few = find_phases(demonstrations(count=2, length=15), SEEN, phases=3, prototypes=50, clusters_per_phase=2)
    assert few.valid.sum(1).tolist() == [10, 10, 10]
    targets = Targets.of(few, torch.zeros(1, 4), SEEN)
    z, phase = torch.zeros(1, 4), torch.tensor([1])
    right = soft_minimum(np.linalg.norm(few.prototypes[1, :10], axis=-1)[None], few.temperature[1])
    assert targets.soft_distance(z, phase).item() == pytest.approx(float(right[0]), rel=1e-4)


def test_the_soft_minimum_is_biased_by_the_number_of_prototypes():
    d = np.array([[1.0, 1.1, 3.0]])
    assert [round(float(soft_minimum(d, t)[0]), 3) for t in (0.05, 0.5, 1.0)] == [0.994, 0.696, 0.287]


def test_phases_that_equal_times_would_leave_empty_get_equal_numbers_of_clusters():
    label = np.repeat(np.arange(6), 5)
    time = np.concatenate([np.linspace(0, 0.1, 25), np.ones(5)])
    phase, median = ordered(label, time, 3)
    assert sorted(phase.tolist()) == [0, 0, 1, 1, 2, 2] and np.all(np.diff(median) >= 0)


@pytest.mark.parametrize(("sizes", "count"), [([50, 3, 1], 10), ([1, 1, 1], 3), ([100], 7), ([9, 9, 9, 9], 2)])
def test_quotas_add_up_and_follow_sizes(sizes, count):
    quota = quotas(np.array(sizes), count)
    assert quota.sum() == count and (quota <= sizes).all()
    if count >= len(sizes):
        assert (quota >= 1).all()


def test_the_same_seed_gives_the_same_phases(found):
    again = find_phases(demonstrations(), SEEN, phases=3, prototypes=20, clusters_per_phase=4)
    assert np.array_equal(found.prototypes, again.prototypes) and np.array_equal(found.percentiles, again.percentiles)
