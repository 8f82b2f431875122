"""Guidance drawn: how far demonstrations are from each phase as time goes by, and distance, phase and gate over guided episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from robowm.data.sidecar import read_sidecar
from robowm.data.store import EpisodeStore
from robowm.report.folders import Artefact, of_kind, read_json
from robowm.report.study import Guided, Timeline
from robowm.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, house_style, new_figure, quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIMELINE, TOLD = "timeline.json", "told"  # as find-phases and guide write them
SIDECAR = f"sidecars/{TOLD}.safetensors"
SHOWN = 3  # guided episodes of a store
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
SIZE = (4.2, 2.6)  # inches


def timelines(artefacts: Sequence[Artefact]) -> list[Timeline]:
    """Return the demonstrations that every ``find-phases`` kept."""
    return [
        Timeline(f"{artefact.name}, demonstration {i}", np.array(kept["distance"]), np.array(kept["phase"]))
        for artefact in of_kind(artefacts, "phases")
        for i, kept in enumerate(read_json(artefact.folder / TIMELINE))
    ]


def guided_episodes(artefacts: Sequence[Artefact]) -> list[Guided]:
    """Return some episodes of every store of guided ones that still has its episodes."""
    found = []
    for artefact in of_kind(artefacts, "store"):
        if not (artefact.folder / SIDECAR).is_file():
            continue
        store = EpisodeStore.open(artefact.folder)
        told, ends = read_sidecar(store, TOLD), np.cumsum(store.lengths)
        if "gate" not in told:  # a person watched, nobody guided
            continue
        for i in range(min(SHOWN, len(store))):
            rows = slice(ends[i] - store.lengths[i], ends[i])
            verdict = "success" if store.meta(i).success == 1 else "failure"
            title = f"{artefact.name}, start {store.meta(i).source.seed}, {verdict}"
            found.append(Guided(title, told["distance"][rows], told["phase"][rows], told["gate"][rows].mean(1)))
    return found


def timeline_figure(timeline: Timeline) -> Figure:
    """Draw the distance to each phase; the line below is coloured by the nearest one."""
    with house_style():
        figure = new_figure(*SIZE)
        axes = figure.subplots()
        for p, line in enumerate(timeline.distance):
            axes.plot(line, color=_colour(p), label=f"phase {p}")
        _phases(axes, timeline.phase)
        _finish(axes, "soft distance")
    return figure


def guided_figure(episode: Guided) -> Figure:
    """Draw the distance to the current phase, grey bars for how much of the sampling was guided, and the phase below."""
    with house_style():
        figure = new_figure(*SIZE)
        axes = figure.subplots()
        top = float(episode.distance.max()) or 1.0
        axes.bar(np.arange(len(episode.gate)), episode.gate * top, width=1.0, color=GREY, alpha=0.35, label="gate open")
        axes.step(np.arange(len(episode.distance)), episode.distance, where="mid", color=BLUE, label="distance to the phase")
        _phases(axes, episode.phase)
        _finish(axes, "soft distance")
    return figure


def _phases(axes: Axes, phase: np.ndarray) -> None:
    """Mark the phase of each step in a line at the lower edge."""
    for p in np.unique(phase):
        steps = np.flatnonzero(phase == p)
        axes.plot(
            steps, np.full(len(steps), 0.02), "s", color=_colour(p), markersize=3, transform=axes.get_xaxis_transform(), clip_on=False
        )


def _finish(axes: Axes, label: str) -> None:
    quiet(axes, "y")
    axes.set_xlabel("step; the line at the bottom is the phase")
    axes.set_ylabel(label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3, handlelength=1.4, columnspacing=1.0)


def _colour(phase: int) -> str:
    return COLOURS[int(phase) % len(COLOURS)]
