"""``suite=latency``: how long a policy takes to decide, guided and not, on the same recorded moments, in turn on the same machine.

``latency_ms/act@p50`` is the median time of one replan of N episodes side by side; ``ratio/act`` is that of an arm over the first one's,
replan by replan.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robowm.artefacts import claim
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.evaluation.bench.world_model import KIND, SUMMARY, seal
from robowm.metrics.stats import bootstrap_mean
from robowm.progress import Progress
from robowm.protocols import Policy
from robowm.types import EvalRow, Obs

WARM_UP = 2  # replans of each that do not count
RESAMPLES = 2000


def run(
    *,
    policies: Mapping[str, Policy],
    store: Path | str,
    task: str,
    output_dir: Path | str,
    episodes: int = 32,
    replans: int = 30,
    seed: int = 0,
) -> dict[str, Any]:
    """Time ``policies`` ({arm: policy}, the first is the base of the ratios) at ``replans`` moments of ``episodes`` episodes of ``store``.

    Returns rows with intervals over replans.
    """
    output_dir = Path(output_dir)
    opened = EpisodeStore.open(store)
    config = {"task": task, "episodes": episodes, "replans": replans, "seed": seed, "arms": list(policies)}
    inputs = {"store": opened.fingerprint(), **{f"policies.{arm}": policy.name for arm, policy in policies.items()}}
    if not policies or episodes < 1 or replans < 1:
        raise UserError(f"give policies, episodes >= 1 and replans >= 1; found {list(policies)}, {episodes} and {replans}")
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return json.loads((output_dir / SUMMARY).read_text())
    spent = timed(policies, moments(opened, episodes, replans + WARM_UP, seed), output_dir, seed)
    base = next(iter(spent))
    rows = []
    for arm, seconds in spent.items():
        median, low, high = median_interval(1000 * seconds, seed)
        rows.append(EvalRow(task, arm, "latency_ms/act@p50", median, low, high, replans))
        if arm != base:
            ratio = bootstrap_mean(seconds / spent[base], seed=seed)
            rows.append(EvalRow(task, arm, "ratio/act", ratio.value, ratio.low, ratio.high, ratio.n))
    note = f"One replan of {episodes} episodes side by side; ratio/act is over {base}, the mean over replans timed in turn."
    summary = {"rows": [vars(row) for row in rows], "pairs": [], "notes": [note]}
    seal(output_dir, summary, inputs, config)
    return summary


def moments(store: EpisodeStore, episodes: int, count: int, seed: int) -> list[Obs]:
    """Return ``count`` times one recorded moment of each of ``episodes`` episodes, drawn with ``seed``; few episodes come again."""
    rng = np.random.default_rng(seed)
    loaded = [store.episode(i) for i in range(min(episodes, len(store)))]
    if not loaded:
        raise UserError(f"{store.path} holds no episodes; record some first")
    group = [loaded[i % len(loaded)] for i in range(episodes)]
    found = []
    for _ in range(count):
        rows = [slice(t, t + 1) for t in (int(rng.integers(len(episode) + 1)) for episode in group)]
        pairs = list(zip(group, rows, strict=True))
        truth = None if loaded[0].environment_state is None else np.stack([e.environment_state[row] for e, row in pairs])
        frames = {camera: np.stack([e.frames[camera][row] for e, row in pairs]) for camera in loaded[0].frames}
        found.append(Obs(frames, np.stack([e.state[row] for e, row in pairs]), truth, tuple(e.task for e in group)))
    return found


def timed(policies: Mapping[str, Policy], obs: list[Obs], output_dir: Path, seed: int) -> dict[str, np.ndarray]:
    """Return the seconds f64 [replans] that each policy took, all of them at one moment before the next."""
    spent: dict[str, list[float]] = {arm: [] for arm in policies}
    with Progress(output_dir, len(obs), "time policies") as progress:
        for turn, now in enumerate(obs):
            for arm, policy in policies.items():
                rngs = [np.random.default_rng([seed, turn, i]) for i in range(len(now))]
                memory = policy.start(len(now))
                began = time.perf_counter()
                policy.act(now, memory, rngs)
                spent[arm].append(time.perf_counter() - began)
            progress.advance(1)
    return {arm: np.array(seconds[WARM_UP:]) for arm, seconds in spent.items()}


def median_interval(values: np.ndarray, seed: int) -> tuple[float, float, float]:
    """Return the median of ``values`` [R] and the bootstrap's 95 % interval of it."""
    rng = np.random.default_rng(seed)
    medians = np.median(rng.choice(values, (RESAMPLES, len(values))), 1)
    return float(np.median(values)), *(float(x) for x in np.percentile(medians, (2.5, 97.5)))
