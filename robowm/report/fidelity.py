"""Rows, paired differences and horizon curves of world models, from the per-episode lines of their evaluations.

A line is ``{task, arm, train_seed, seed, values: {metric: number}}``; an episode may lack a metric. Intervals are a crossed
bootstrap over training seeds (one world model each) and starts (robowm/metrics/stats.py), drawn once per arm and used for all metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robowm.errors import UserError
from robowm.jsonl import recover_lines
from robowm.metrics.stats import crossed_bootstrap, signs_of
from robowm.report.folders import Artefact, of_kind
from robowm.report.study import Curve, Strip
from robowm.types import EvalPair, EvalRow

KIND = "world_model_evaluation"
MODEL, BASELINES = "world_model", ("copy_last", "shuffled_actions")
DRAWS = 4000
ALL = "fidelity"  # metric of a wanted pair of world models: the means of all of them
KEPT_EVERY = 20  # frames: a results file keeps the first window, these, the last and the mean; curves show all


@dataclass(frozen=True)
class Scores:
    """One arm on one task: R training seeds with M episodes each, K metrics."""

    metrics: tuple[str, ...]
    starts: tuple[tuple[tuple[int, int], ...], ...]  # [R][M] (training seed, start)
    values: tuple[np.ndarray, ...]  # [R] of f64 [M, K], nan where an episode has no value


def read_scores(artefacts: Sequence[Artefact]) -> dict[tuple[str, str], Scores]:
    """Return {(task, arm): Scores} of all finished evaluations; the episodes of all arms of a task must be the same."""
    lines = [line for artefact in of_kind(artefacts, KIND) for line in recover_lines(artefact.folder / "episodes.jsonl")]
    found = {}
    for label in dict.fromkeys((line["task"], line["arm"]) for line in lines):
        found[label] = _scores([line for line in lines if (line["task"], line["arm"]) == label])
    for (task, arm), scores in found.items():
        if (task, MODEL) in found and scores.starts != found[task, MODEL].starts:
            raise UserError(f"{task}: {arm} and {MODEL} were evaluated on different episodes; evaluate the world model again")
    return found


def rows(found: Mapping[tuple[str, str], Scores]) -> list[dict[str, Any]]:
    """Return a row per task, arm and metric that a results file keeps."""
    kept = []
    for (task, arm), scores in found.items():
        mean, low, high = interval(grid(scores.starts, scores.values))
        n = np.isfinite(np.concatenate(scores.values)).sum(0)
        for k, metric in enumerate(scores.metrics):
            if n[k] and is_kept(metric, scores.metrics):
                kept.append(asdict(EvalRow(task, arm, metric, float(mean[k]), float(low[k]), float(high[k]), int(n[k]))))
    return kept


def pairs(found: Mapping[tuple[str, str], Scores], wanted: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return paired differences of each metric's mean: the model from its controls, and ``wanted`` ones {a, b, metric: fidelity}."""
    compared = [*((MODEL, arm) for arm in BASELINES), *((pair["a"], pair["b"]) for pair in wanted if pair.get("metric") == ALL)]
    tasks = dict.fromkeys(task for task, _ in found)
    there = [(task, a, b) for task in tasks for a, b in compared if (task, a) in found and (task, b) in found]
    return [pair for task, a, b in there for pair in _pairs(task, a, b, found[task, a], found[task, b])]


def _pairs(task: str, a: str, b: str, ours: Scores, theirs: Scores) -> list[dict[str, Any]]:
    """Compare two arms over the training seeds that both have; n, wins, losses and p count each start once."""
    sides = [
        dict(zip((starts[0][0] for starts in one.starts), zip(one.starts, one.values, strict=True), strict=True)) for one in (ours, theirs)
    ]
    both = [seed for seed in sides[0] if seed in sides[1]]  # controls may have run for fewer training seeds
    if not both or any(sides[0][seed][0] != sides[1][seed][0] for seed in both):
        raise UserError(f"{task}: {a} and {b} were evaluated on different episodes or training seeds; evaluate both on the same")
    differences = grid([sides[0][seed][0] for seed in both], [sides[0][seed][1] - sides[1][seed][1] for seed in both])
    mean, low, high = interval(differences)
    kept = []
    for k, metric in enumerate(ours.metrics):
        signs = signs_of(differences[:, :, k])
        if metric.endswith("@mean") and signs.n:
            bounds, shares = (float(mean[k]), float(low[k]), float(high[k])), (signs.wins / signs.n, signs.losses / signs.n)
            kept.append(asdict(EvalPair(task, a, b, metric, *bounds, signs.n, *shares, signs.p)))
    return kept


def curves(found: Mapping[tuple[str, str], Scores]) -> list[Curve]:
    """Return every metric of every camera over the horizon."""
    drawn = []
    for (task, arm), scores in found.items():
        mean, low, high = interval(grid(scores.starts, scores.values))
        frames = {metric: int(at) for metric in scores.metrics if (at := metric.partition("@")[2]).isdigit()}
        for name in dict.fromkeys(metric.partition("@")[0] for metric in frames):
            chosen = sorted((m for m in frames if m.partition("@")[0] == name), key=frames.__getitem__)
            at = [scores.metrics.index(metric) for metric in chosen]
            metric, _, camera = name.partition("/")
            frame = np.array([frames[metric] for metric in chosen])
            drawn.append(Curve(task, arm, metric, camera, frame, mean[at], low[at], high[at]))
    return drawn


def strips(artefacts: Sequence[Artefact]) -> list[Strip]:
    """Return the film strips that the evaluations kept."""
    found = []
    for artefact in of_kind(artefacts, KIND):
        for path in sorted((artefact.folder / "strips").glob("*.npz")):
            with np.load(path, allow_pickle=False) as kept:
                sides = {
                    side: {key.partition("/")[2]: kept[key] for key in kept.files if key.startswith(f"{side}/")}
                    for side in ("truth", "predicted")
                }
                config = artefact.record["config"]
                arm = config.get("arm", MODEL)
                label = f"episode {path.stem.rpartition('_')[2]}, training seed {config['train_seed']}"
                label = label if arm == MODEL else f"{arm}, {label}"
                shown = sides["truth"], sides["predicted"], int(kept["chunk"]), float(kept["fps"])
                found.append(Strip(str(kept["task"]), label, *shown, arm=arm))
    return found


def interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, low and high f64 [K] of ``values`` f64 [R, M, K] over training seeds and starts; an episode without a value is nan."""
    return crossed_bootstrap(values, seed=0, draws=DRAWS)


def grid(starts: Sequence[Sequence[tuple[int, int]]], values: Sequence[np.ndarray]) -> np.ndarray:
    """Return f64 [R, M, K] of R arrays [M', K] with ``starts`` [R][M'] (training seed, start), nan where a training seed lacks one."""
    places = {start: m for m, start in enumerate(sorted({start for group in starts for _, start in group}))}
    found = np.full((len(values), len(places), values[0].shape[1]), np.nan)
    for r, (group, scores) in enumerate(zip(starts, values, strict=True)):
        found[r, [places[start] for _, start in group]] = scores
    return found


def _scores(lines: Sequence[Mapping[str, Any]]) -> Scores:
    seeds = sorted({line["train_seed"] for line in lines})
    groups = [sorted((line for line in lines if line["train_seed"] == seed), key=lambda line: line["seed"]) for seed in seeds]
    metrics = tuple(dict.fromkeys(metric for line in lines for metric in line["values"]))
    values = tuple(np.array([[line["values"].get(metric, np.nan) for metric in metrics] for line in group], float) for group in groups)
    return Scores(metrics, tuple(tuple((line["train_seed"], line["seed"]) for line in group) for group in groups), values)


def is_kept(metric: str, metrics: Sequence[str]) -> bool:
    """Tell whether a results file keeps ``metric`` out of ``metrics``: of single frames only some."""
    name, _, at = metric.partition("@")
    frames = [int(m.partition("@")[2]) for m in metrics if m.startswith(f"{name}@") and m.partition("@")[2].isdigit()]
    return not at.isdigit() or int(at) in (min(frames), max(frames)) or int(at) % KEPT_EVERY == 0
