"""What a report is made of: a results file and, where the run's folders are at hand, what cannot be said in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robowm.report.schema import FIDELITY, task_and_actions

EXTRA_TRAINING = "+"  # arms that add to another start with it
REFERENCES = ("never_moves", "expert")  # arms that bound the scale and take part in no claim
PLAIN = ("base", "unguided")  # how the names of arms begin that add nothing new: they are what others are measured against
CONTROLS = ("copy_last", "shuffled_actions", "zero_actions", "real_frames")  # of world models, also behind a model's name and a colon


@dataclass(frozen=True)
class Curve:
    """One metric of one arm over a free-running rollout."""

    task: str  # with the action set: "tabletop/pick_place:open_loop"
    arm: str
    metric: str  # psnr | ssim | lpips ...
    camera: str
    frame: np.ndarray  # int [F], 1 = the first predicted frame
    value: np.ndarray  # float [F]
    low: np.ndarray | None = None  # float [F], 95 %
    high: np.ndarray | None = None  # float [F]


@dataclass(frozen=True)
class Strip:
    """A predicted rollout beside what really happened; row 0 is the real frame both start from."""

    task: str
    label: str
    truth: dict[str, np.ndarray]  # {camera: uint8 [L+1, h, w, 3]}
    predicted: dict[str, np.ndarray]  # {camera: uint8 [L+1, h, w, 3]}
    chunk: int  # frames predicted at a time; 0 where not known
    fps: float
    arm: str = "world_model"


@dataclass(frozen=True)
class Video:
    """An H.264 film with what to read under it."""

    group: str  # heading it stands under
    title: str
    mp4: bytes


@dataclass(frozen=True)
class Stage:
    """One finished stage of a flywheel."""

    unit: str  # "pick_place, seed 0", or "" for what all units share
    name: str
    start: float | None  # seconds since the flywheel began; None where only the length is known
    seconds: float


@dataclass(frozen=True)
class Reliability:
    """How often a classifier that says p is right, on held-out real episodes."""

    task: str
    predicted: np.ndarray  # float [B], mean probability in the bin
    observed: np.ndarray  # float [B], share of successes in the bin
    count: np.ndarray  # int [B]
    threshold: float | None = None


@dataclass(frozen=True)
class Timeline:
    """A demonstration of T steps: its soft distance to each of P phases, and which is the nearest."""

    title: str
    distance: np.ndarray  # float [P, T + 1]
    phase: np.ndarray  # int [T + 1]


@dataclass(frozen=True)
class Guided:
    """A guided episode of T steps: what was told of the replan that each step belongs to."""

    title: str
    distance: np.ndarray  # float [T], soft distance to the phase
    phase: np.ndarray  # int [T]
    gate: np.ndarray  # float [T], share of the sampling steps at which the gate was open


@dataclass(frozen=True)
class Recovering:
    """An evaluated policy: how often it came past being stuck, and how often it succeeded."""

    task: str
    arm: str
    recoveries: float  # per episode
    success: float


@dataclass(frozen=True)
class Study:
    """Everything that a page shows."""

    results: Mapping[str, Any]
    curves: list[Curve] = field(default_factory=list)
    strips: list[Strip] = field(default_factory=list)
    videos: list[Video] = field(default_factory=list)
    reliability: list[Reliability] = field(default_factory=list)
    viability: list[Reliability] = field(default_factory=list)  # of HABC's critics, ``task`` names their folder
    recovering: list[Recovering] = field(default_factory=list)
    timelines: list[Timeline] = field(default_factory=list)
    guided: list[Guided] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    provenance: list[Mapping[str, Any]] = field(default_factory=list)  # artefact records: folder, kind, fingerprint, inputs
    config: str = ""  # the run's configuration as text


def tasks(results: Mapping[str, Any], metric: str = "success") -> list[str]:
    """Return the tasks that have rows of ``metric``, in the order of the file."""
    return list(dict.fromkeys(row["task"] for row in results["rows"] if row["metric"] == metric))


def rows_of(results: Mapping[str, Any], *, task: str | None = None, metric: str | None = None) -> list[Mapping[str, Any]]:
    """Return the rows of a task and a metric (None: any)."""
    return [r for r in results["rows"] if task in (None, r["task"]) and metric in (None, r["metric"])]


def pairs_of(results: Mapping[str, Any], *, task: str | None = None, metric: str | None = None) -> list[Mapping[str, Any]]:
    """Return the pairs of a task and a metric (None: any)."""
    return [p for p in results["pairs"] if task in (None, p["task"]) and metric in (None, p["metric"])]


def arm_order(arms: Iterable[str]) -> list[str]:
    """Order arms for reading: never_moves, plain arms as they came, arms that add to another, expert."""

    def rank(arm: str) -> tuple[int, int]:
        if arm in REFERENCES:
            return (0, 0) if arm == "never_moves" else (3, 0)
        return (2, arm.count(EXTRA_TRAINING)) if arm.startswith(EXTRA_TRAINING) else (1, 0)

    return sorted(dict.fromkeys(arms), key=rank)


def is_new(arm: str) -> bool:
    """True for an arm whose success would be an improvement: ``+real``, ``guided_ft1``, not ``base_longer``."""
    return arm not in REFERENCES and not arm.startswith(PLAIN)


def is_control(arm: str) -> bool:
    """True for an arm that a world model is measured against: ``copy_last``, ``rl:shuffled_actions``."""
    return arm.rpartition(":")[2] in CONTROLS


def curves_from_rows(results: Mapping[str, Any]) -> list[Curve]:
    """Return horizon curves from the ``<metric>/<camera>@<frame>`` rows of a results file; arms with under two frames give none."""
    groups: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for row in results["rows"]:
        name, _, frame = row["metric"].partition("@")
        metric, _, camera = name.partition("/")
        if metric in FIDELITY and frame.isdigit():
            groups.setdefault((row["task"], row["arm"], metric, camera), []).append(row)
    curves = []
    for (task, arm, metric, camera), rows in groups.items():
        if len(rows) < 2:
            continue
        rows = sorted(rows, key=lambda row: int(row["metric"].partition("@")[2]))
        frame = np.array([int(row["metric"].partition("@")[2]) for row in rows])
        value, low, high = (np.array([row[name] for row in rows], float) for name in ("value", "low", "high"))
        curves.append(Curve(task, arm, metric, camera, frame, value, low, high))
    return curves


def action_set_label(task: str) -> str:
    """Return ``pick_place, open-loop actions`` for ``tabletop/pick_place:open_loop``."""
    name, actions = task_and_actions(task)
    return f"{name.rpartition('/')[2]}, {actions.replace('_', '-')} actions"
