"""Phases of a task found in demonstrations, each with target latents and with the distances that demonstrations keep from them.

    R demonstrated moments, D entries of a latent, P phases, M prototypes of a phase, Q percentiles

After ReGuide (arXiv 2606.28939): cluster moments by what is seen, where the robot is and how both move; order clusters by when they happen;
merge them into macro-phases of equal time; choose prototypes near the clusters' centres; store percentiles of the soft distance. Distances
are computed with the prototypes and the temperature that guidance uses later, since the soft minimum is biased by both; but a moment is
compared with other demonstrations' prototypes alone. ReGuide counts its own too, and with few demonstrations most moments are then next to
themselves: thresholds came out so small that new episodes lay beyond the upper one nearly always.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.cluster.vq import kmeans2

PERCENTILES = tuple(range(10, 100, 10))
PCA = 128  # most principal components
RESTARTS = 20
MOTION = 0.3  # weight of changes beside what is changing


@dataclass(frozen=True)
class Phases:
    """The targets. Phases with fewer than M prototypes repeat their last one, marked invalid."""

    prototypes: np.ndarray  # f32 [P, M, D]
    valid: np.ndarray  # bool [P, M]
    temperature: np.ndarray  # f32 [P], of the soft minimum
    percentiles: np.ndarray  # f32 [P, Q], of demonstrated soft distances, at PERCENTILES
    starts: np.ndarray  # f32 [P], mean normalised time at which a phase begins, for plots
    apart: np.ndarray  # f32 [101], percentiles 0 to 100 of how far what a moment shows is from the nearest of other demonstrations

    def threshold(self, percentile: float | None) -> np.ndarray:
        """Return the soft distance f32 [P] below which ``percentile`` of a phase's demonstrated moments lie; None: infinity."""
        if percentile is None:
            return np.full(len(self.prototypes), np.inf, np.float32)
        return np.array([np.interp(percentile, PERCENTILES, row) for row in self.percentiles], np.float32)

    def unlike(self, percentile: float | None) -> float:
        """Return the distance to other demonstrations that ``percentile`` of moments keep below; None: minus infinity."""
        return -np.inf if percentile is None else float(np.interp(percentile, np.arange(101), self.apart))


def find_phases(
    latents: Sequence[np.ndarray],
    seen: int,
    *,
    phases: int,
    prototypes: int = 100,
    clusters_per_phase: int = 10,
    temperature_percentile: float = 70,
    seed: int = 0,
) -> Phases:
    """Return the phases of demonstrations ``latents``, f32 [T_i + 1, D] each, whose first ``seen`` entries are what is seen."""
    rows = np.concatenate(latents)  # [R, D]
    time = np.concatenate([np.linspace(0, 1, len(episode)) for episode in latents])
    owner = np.repeat(np.arange(len(latents)), [len(episode) for episode in latents])  # [R], which demonstration
    features = reduced(np.concatenate([moving(episode, seen) for episode in latents]))
    count = min(clusters_per_phase * phases, len(rows))
    label = cluster(features, count, seed)
    phase_of_cluster, median = ordered(label, time, phases)
    phase = phase_of_cluster[label]  # int [R]
    found = [
        chosen(features, label, time, median, np.flatnonzero(phase_of_cluster == p), min(prototypes, int((phase == p).sum())))
        for p in range(phases)
    ]
    table = np.stack([rows[np.pad(index, (0, prototypes - len(index)), mode="edge")] for index in found]).astype(np.float32)
    valid = np.stack([np.arange(prototypes) < len(index) for index in found])
    temperature, percentiles = [], []
    for p in range(phases):
        distance = distances_to_others(rows[phase == p], owner[phase == p], table[p, valid[p]], owner[found[p]])
        temperature.append(max(float(np.percentile(distance.min(1), temperature_percentile)), 1e-3))
        percentiles.append(np.percentile(soft_minimum(distance, temperature[-1]), PERCENTILES))
    starts = [time[phase == p].min() if (phase == p).any() else 1.0 for p in range(phases)]
    apart = np.percentile(nearest_others([episode[:, :seen] for episode in latents]), np.arange(101))
    return Phases(table, valid, *(np.asarray(x, np.float32) for x in (temperature, percentiles, starts, apart)))


def nearest_others(episodes: Sequence[np.ndarray]) -> np.ndarray:
    """Return each moment's distance [R] to the nearest moment of any other of the ``episodes``, f32 [T_i + 1, D] each; at least two."""
    found = []
    for i, episode in enumerate(episodes):
        found.append(distances(episode, np.concatenate([other for j, other in enumerate(episodes) if j != i])).min(1))
    return np.concatenate(found)


def moving(latents: np.ndarray, seen: int, motion: float = MOTION) -> np.ndarray:
    """Return [v, p, motion dv, motion dp] of an episode's latents f32 [T, D]: f32 [T, 2 D]; v are the first ``seen`` entries."""
    change = np.diff(latents, axis=0, prepend=latents[:1])
    return np.concatenate([latents[:, :seen], latents[:, seen:], motion * change[:, :seen], motion * change[:, seen:]], 1)


def reduced(features: np.ndarray, most: int = PCA) -> np.ndarray:
    """Return standardised ``features`` [R, F] in their first principal components, f64 [R, at most ``most``]."""
    x = features.astype(np.float64)
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-6)
    _, _, axes = np.linalg.svd(np.cov(x.T), hermitian=True)
    return x @ axes[: min(most, len(axes))].T


def cluster(features: np.ndarray, count: int, seed: int, restarts: int = RESTARTS) -> np.ndarray:
    """Return each row's cluster int [R], the tightest of several k-means runs; empty clusters do not occur."""
    best, lowest = None, np.inf
    for i in range(restarts):
        centres, label = kmeans2(features, count, minit="++", seed=np.random.default_rng([seed, i]), missing="warn")
        spread = float(((features - centres[label]) ** 2).sum())
        if spread < lowest:
            best, lowest = label, spread
    return np.unique(best, return_inverse=True)[1]


def ordered(label: np.ndarray, time: np.ndarray, phases: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each cluster's phase int [C] and median time f64 [C].

    Equal bins of time decide, or, where one would be empty, equal numbers of clusters in the order of their times.
    """
    count = label.max() + 1
    median = np.array([np.median(time[label == c]) for c in range(count)])
    phase = np.minimum((median * phases).astype(int), phases - 1)
    if len(np.unique(phase)) < phases:
        phase = np.empty(count, int)
        phase[np.argsort(median, kind="stable")] = np.arange(count) * phases // count
    return phase, median


def chosen(features: np.ndarray, label: np.ndarray, time: np.ndarray, median: np.ndarray, clusters: np.ndarray, count: int) -> np.ndarray:
    """Return the rows int [count] that stand for ``clusters``: of each, by its size but at least one, those nearest its centre and time."""
    quota = quotas(np.array([(label == c).sum() for c in clusters]), count)
    found = []
    for c, wanted in zip(clusters, quota, strict=True):
        rows = np.flatnonzero(label == c)
        score = np.linalg.norm(features[rows] - features[rows].mean(0), axis=1) + np.abs(time[rows] - median[c])
        found.append(rows[np.argsort(score, kind="stable")[:wanted]])
    return np.concatenate(found)


def quotas(sizes: np.ndarray, count: int) -> np.ndarray:
    """Return how many of ``count`` each cluster of ``sizes`` int [C] gets: at least one where there is room, otherwise by size."""
    exact = sizes * count / sizes.sum()
    quota = np.minimum(np.maximum(exact.astype(int), 1), sizes)
    while (surplus := quota.sum() - count) != 0:
        gain = exact - quota
        able = quota < sizes if surplus < 0 else quota > (1 if (quota > 1).any() else 0)
        i = int(np.where(able, gain if surplus < 0 else -gain, -np.inf).argmax())
        quota[i] += 1 if surplus < 0 else -1
    return quota


def distances_to_others(rows: np.ndarray, owner: np.ndarray, prototypes: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return ``distances``, infinite where row and prototype are of the same demonstration; rows that this leaves nothing are left out.

    ``owner`` int [R] and ``owners`` int [M] say which demonstration each is of. Where all rows would be left out all distances count.
    """
    distance = distances(rows, prototypes)
    others = np.where(owner[:, None] == owners[None], np.inf, distance)
    compared = np.isfinite(others).any(1)
    return others[compared] if compared.any() else distance


def distances(rows: np.ndarray, prototypes: np.ndarray) -> np.ndarray:
    """Return Euclidean distances [R, M]."""
    squares = (rows**2).sum(1)[:, None] - 2 * rows @ prototypes.T + (prototypes**2).sum(1)
    return np.sqrt(np.maximum(squares, 0))


def soft_minimum(distance: np.ndarray, temperature: float) -> np.ndarray:
    """Return -t log sum_m exp(-d_m / t) of ``distance`` [R, M]: at most the minimum, by up to t log M less."""
    lowest = distance.min(1)
    return lowest - temperature * np.log(np.exp(-(distance - lowest[:, None]) / temperature).sum(1))
