"""Thousands of frames from one real one: does a model keep its speed, its memory and its picture?

    N episodes, F frames, V cameras; the roll is cut into ten equal parts ("tenths")

No truth reaches that far, so the picture is judged by what every real film has: contrast (deviation over pixels) and change from one frame
to the next, each as a ratio to the mean of the episodes' own frames. A model that has frozen, or faded to grey, falls far below one; one
that flickers, or whose errors have grown into patterns of their own, rises far above.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robowm.artefacts import claim, fingerprint_json, write_artefact, write_json, write_text
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.evaluation.world_models import NOISE_SALT
from robowm.metrics.stats import outcome_row
from robowm.progress import Progress
from robowm.protocols import WorldModel
from robowm.types import Episode, EvalRow, Obs

KIND, SUMMARY, EPISODES = "long_roll", "long_roll.json", "episodes.jsonl"
TENTHS = 10
SOUND = {"contrast": (1 / 4, 2), "change": (1 / 20, 5)}  # of real frames; outside of either in the last tenth an episode has collapsed
REAL_FLOOR = 1e-3  # grey levels: a camera that never changes has no ratio to speak of


@dataclass(frozen=True)
class LongRoll:
    """How far, and with how many episodes side by side."""

    frames: int = 10_000  # 0: no long roll
    episodes: int = 4


@dataclass(frozen=True)
class Course:
    """What one roll did."""

    ratios: Mapping[str, np.ndarray]  # {"contrast/<camera>" | "change/<camera>": f64 [N, 10]}, to the real frames' mean
    seconds: tuple[float, float]  # median per chunk in the first and in the last tenth
    rss_mib: tuple[float, float]  # largest resident memory seen in either

    def collapsed(self) -> np.ndarray:
        """Return bool [N]: some camera's contrast or motion was not ``SOUND`` in the last tenth."""
        found = []
        for name, ratio in self.ratios.items():
            least, most = SOUND[name.partition("/")[0]]
            found.append((ratio[:, -1] < least) | (ratio[:, -1] > most))
        return np.any(found, axis=0)


def run_long_roll(
    world_model: WorldModel, store: EpisodeStore, numbers: np.ndarray, settings: LongRoll, labels: Mapping[str, Any], output_dir: Path
) -> dict[str, Any]:
    """Roll from the starts of the episodes ``numbers`` under their actions, over and over; return rows and notes.

    ``labels``: task, arm, train_seed. An interrupted roll starts again: half of one would say nothing of memory or speed.
    """
    inputs = {"world_model": world_model.name, "store": store.fingerprint()}
    config = {**labels, **asdict(settings), "numbers": [int(i) for i in numbers]}
    if (record := claim(output_dir, kind=KIND, inputs=inputs, config=config)) is not None:
        return {name: record[name] for name in ("rows", "notes")}
    group = [store.episode(int(i), cameras=world_model.cameras) for i in numbers]
    course = roll(world_model, group, settings.frames, output_dir)
    lines = [
        {**labels, "seed": episode.source.seed, "values": {name: round(float(value), 5) for name, value in _values(course, i).items()}}
        for i, episode in enumerate(group)
    ]
    write_text(output_dir / EPISODES, "".join(json.dumps(line) + "\n" for line in lines))
    summary = {"rows": rows(course, lines), "notes": notes(course, labels["task"], labels["arm"], settings.frames)}
    write_json(output_dir / SUMMARY, summary)
    fingerprint = fingerprint_json({"inputs": inputs, "config": config})
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint, inputs=inputs, config=config, **summary)
    return summary


def roll(world_model: WorldModel, group: Sequence[Episode], frames: int, output_dir: Path | None = None) -> Course:
    """Roll ``frames`` frames (rounded up to whole chunks) and measure on the way; memory does not grow with their number."""
    chunks = -(-frames // world_model.chunk)
    if chunks < TENTHS:
        raise UserError(f"long_roll.frames={frames} is fewer than ten chunks of {world_model.chunk} frames; ask for more, or 0 for none")
    actions = [episode.action for episode in group]
    first = {camera: np.stack([e.frames[camera][:1] for e in group]) for camera in world_model.cameras}
    obs = Obs(first, np.stack([e.state[:1] for e in group]), None, tuple(e.task for e in group))
    rngs = [np.random.default_rng([NOISE_SALT, e.source.seed]) for e in group]
    real = _real(group, first)
    sums = {name: np.zeros((len(group), TENTHS)) for name in real}
    count, seconds, rss = np.zeros(TENTHS), [[] for _ in range(TENTHS)], np.zeros(TENTHS)
    memory, last = world_model.start(obs), first
    with Progress(output_dir, chunks, "long roll") as progress:
        for chunk in range(chunks):
            tenth = chunk * TENTHS // chunks
            at = chunk * world_model.chunk + np.arange(world_model.chunk)
            wanted = np.stack([own[at % len(own)] for own in actions])
            began = time.perf_counter()
            shown, memory = world_model.predict(memory, wanted, rngs)
            seconds[tenth].append(time.perf_counter() - began)
            rss[tenth] = max(rss[tenth], resident_mib())
            for camera, rows_ in shown.frames.items():
                sums[f"contrast/{camera}"][:, tenth] += contrast(rows_).mean(1)
                sums[f"change/{camera}"][:, tenth] += change(np.concatenate([last[camera], rows_], 1)).mean(1)
            count[tenth] += 1
            last = {camera: rows_[:, -1:] for camera, rows_ in shown.frames.items()}
            progress.advance()
    medians = [float(np.median(part)) for part in seconds]
    ratios = {name: total / count / max(real[name], REAL_FLOOR) for name, total in sums.items()}
    return Course(ratios, (medians[0], medians[-1]), (float(rss[0]), float(rss[-1])))


def contrast(frames: np.ndarray) -> np.ndarray:
    """Return the deviation over the pixels of each channel, averaged over channels, f64 [...] of uint8 [..., h, w, 3], in grey levels."""
    return frames.std(axis=(-3, -2), dtype=np.float64).mean(-1)


def change(frames: np.ndarray) -> np.ndarray:
    """Return the mean absolute difference of each frame from the one before, f64 [..., K - 1] of uint8 [..., K, h, w, 3]."""
    return np.abs(np.diff(frames.astype(np.int16), axis=-4)).mean((-3, -2, -1))


def rows(course: Course, lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return ``contrast``, ``change`` and ``collapsed`` over episodes, and the roll's own seconds and memory (n = 1)."""
    task, arm, train_seed = (lines[0][name] for name in ("task", "arm", "train_seed"))
    found = [
        outcome_row(task, arm, metric, {train_seed: {line["seed"]: line["values"][metric] for line in lines}})
        for metric in lines[0]["values"]
    ]
    once = {
        "seconds/chunk@first": course.seconds[0],
        "seconds/chunk@last": course.seconds[1],
        "ratio/seconds_per_chunk": course.seconds[1] / course.seconds[0],
        "rss_mib/long_roll@first": course.rss_mib[0],
        "rss_mib/long_roll@last": course.rss_mib[1],
    }
    return [asdict(row) for row in [*found, *(EvalRow(task, arm, name, value, value, value, 1) for name, value in once.items())]]


def notes(course: Course, task: str, arm: str, frames: int) -> list[str]:
    """Return a line that says so where at least one episode collapsed."""
    collapsed = course.collapsed()
    if not collapsed.any():
        return []
    range_ = ", ".join(
        f"{name} {float(ratio[:, -1].min()):.3f} to {float(ratio[:, -1].max()):.3f}" for name, ratio in course.ratios.items()
    )
    return [
        f"{task}: {arm} collapsed in {int(collapsed.sum())} of {len(collapsed)} long rolls of {frames:,} frames "
        f"(last tenth, real frames = 1: {range_})."
    ]


def resident_mib() -> float:
    """Return the resident memory of this process in MiB, its highest so far where the system does not tell the current one."""
    import resource

    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _real(group: Sequence[Episode], cameras: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean of each measure over all real frames of the episodes."""
    return {
        f"{name}/{camera}": float(np.mean([measure(episode.frames[camera]).mean() for episode in group]))
        for camera in cameras
        for name, measure in (("contrast", contrast), ("change", change))
    }


def _values(course: Course, i: int) -> dict[str, float]:
    """Return those of episode ``i``: ``contrast/<camera>@tenth_1`` to ``@tenth_10``, ``change`` alike, ``collapsed/long_roll``."""
    found = {f"{name}@tenth_{k + 1}": ratio[i, k] for name, ratio in course.ratios.items() for k in range(TENTHS)}
    return {**found, "collapsed/long_roll": float(course.collapsed()[i])}
