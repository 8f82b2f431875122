"""HABC in a report: how far its critics can be trusted, what its weights leave to learn from, and success against recoveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from robowm.metrics.stats import outcome_row
from robowm.report.classifier import task_of
from robowm.report.folders import Artefact, of_kind
from robowm.report.study import Recovering, Reliability
from robowm.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, house_style, new_figure, quiet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CRITICS, WEIGHTS, RECOVERIES = "critics", "weights", "recoveries"
TRUST = {
    "auc": "auc/viability",
    "auc_ahead": "auc/viability@ahead",  # before the goal first held
    "ece": "ece/viability",
    "correlation": "correlation/efficiency",
    "error_steps": "error_steps/efficiency",
}
LEFT = ("effective_share", "dropped", "saturated", "clipped", "mean_gate", "improved")  # of weights
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
SIZE = (4.2, 3.2)  # inches


def rows(artefacts: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return how critics do on held-out episodes and what weights leave, over training seeds; arms are the names of their stages."""
    found: dict[tuple[str, str, str], dict[int, dict[int, float]]] = {}  # {(task, arm, metric): {artefact: {0: number}}}
    for number, artefact in enumerate(of_kind(artefacts, CRITICS, WEIGHTS)):
        critics, measured = artefact.kind == CRITICS, artefact.record["measured"]
        names = TRUST if critics else {name: f"{name}/weights" for name in LEFT}
        arm = artefact.folder.name if critics else artefact.record["config"]["name"]
        for key, metric in names.items():
            if measured.get(key) is not None:
                found.setdefault((task_of(artefact, artefacts), arm, metric), {})[number] = {0: float(measured[key])}
    return [_row(*label, numbers) for label, numbers in found.items()]


def _row(task: str, arm: str, metric: str, numbers: Mapping[int, Mapping[int, float]]) -> dict[str, Any]:
    """Return a row with its interval over training seeds; of one alone, and of equal ones, nothing but the number is known."""
    values = [value for one in numbers.values() for value in one.values()]
    if len(set(values)) > 1:
        return asdict(outcome_row(task, arm, metric, numbers))
    return {"task": task, "arm": arm, "metric": metric, "value": values[0], "low": values[0], "high": values[0], "n": len(values)}


def reliabilities(artefacts: Sequence[Artefact]) -> list[Reliability]:
    """Return the reliability of viability on the held-out episodes of each training."""
    found = []
    for artefact in of_kind(artefacts, CRITICS):
        if bins := artefact.record["measured"].get("reliability"):
            predicted, observed = (np.array([np.nan if x is None else x for x in bins[name]], float) for name in ("predicted", "observed"))
            found.append(Reliability(artefact.name, predicted, observed, np.array(bins["count"], int)))
    return found


def recovering(lines: Sequence[Mapping[str, Any]]) -> list[Recovering]:
    """Return each evaluated policy's recoveries per episode and success, of those that recoveries were counted of."""
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for line in lines:
        if RECOVERIES in line.get("measures", ()):
            groups.setdefault((line["task"], line["arm"], line["train_seed"]), []).append(line)
    return [
        Recovering(task, arm, float(np.mean([x["measures"][RECOVERIES] for x in found])), float(np.mean([x["success"] for x in found])))
        for (task, arm, _), found in groups.items()
    ]


def fit(points: Sequence[Recovering]) -> tuple[float, float, float] | None:
    """Return (slope, intercept, correlation) of success over recoveries by least squares, None where there is no line to draw."""
    x, y = np.array([p.recoveries for p in points]), np.array([p.success for p in points])
    if len(points) < 3 or x.std() == 0 or y.std() == 0:
        return None
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(intercept), float(np.corrcoef(x, y)[0, 1])


def notes(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line a task on success against recoveries."""
    said = []
    points = recovering(lines)
    for task in dict.fromkeys(point.task for point in points):
        own = [point for point in points if point.task == task]
        if line := fit(own):
            said.append(
                f"{task}: success = {line[0]:.3f} x recoveries per episode {'+' if line[1] >= 0 else '-'} {abs(line[1]):.3f}, "
                f"r = {line[2]:.2f}, over {len(own)} policies; a correlation across policies, not a cause."
            )
    return said


def recovering_figure(points: Sequence[Recovering]) -> Figure:
    """Draw success over mean recoveries per episode of every policy of one task, a colour an arm, and the line through them."""
    with house_style():
        figure = new_figure(*SIZE)
        axes = figure.subplots()
        for k, arm in enumerate(dict.fromkeys(point.arm for point in points)):
            own = [point for point in points if point.arm == arm]
            axes.scatter([p.recoveries for p in own], [p.success for p in own], s=28, color=COLOURS[k % len(COLOURS)], label=arm)
        if line := fit(points):
            ends = np.array([min(p.recoveries for p in points), max(p.recoveries for p in points)])
            axes.plot(ends, line[0] * ends + line[1], color=GREY, linewidth=1.2, label=f"{line[0]:.2f} x {line[1]:+.2f}, r = {line[2]:.2f}")
        quiet(axes, "both")
        axes.set(xlabel="recoveries per episode", ylabel="success")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, handlelength=1.2, columnspacing=1.0)
    return figure
