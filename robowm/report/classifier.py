"""Rows about the success classifier: precision and recall on real episodes, mistakes on imagined ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from robowm.jsonl import recover_lines
from robowm.metrics.stats import outcome_row
from robowm.report.folders import Artefact, of_kind
from robowm.report.schema import TASK_NAME
from robowm.report.study import Reliability

CLASSIFIER, IMAGINED = "success_classifier", "imagined_vs_real"


def rows(artefacts: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return every row about the success classifier."""
    return [*classifier_rows(artefacts), *false_success_rows(artefacts)]


def classifier_rows(artefacts: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return precision and recall on real held-out episodes; the classifiers of a task count as so many training seeds."""
    found: dict[tuple[str, str], dict[int, dict[int, float]]] = {}  # {(task, metric): {artefact: {case: right}}}
    for number, artefact in enumerate(of_kind(artefacts, CLASSIFIER)):
        counts = artefact.record["measured"]["confusion"]
        task, hits = task_of(artefact, artefacts), counts["true_positive"]
        for metric, misses in (("precision", counts["false_positive"]), ("recall", counts["false_negative"])):
            if hits + misses:
                _add(found.setdefault((task, f"{metric}/{CLASSIFIER}"), {}), number, [1.0] * hits + [0.0] * misses)
    return [asdict(outcome_row(task, CLASSIFIER, metric, cases)) for (task, metric), cases in found.items()]


def false_success_rows(artefacts: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return the share of imagined successes that fail when their actions are executed; each comparison counts as a training seed."""
    found: dict[tuple[str, str], dict[int, dict[int, float]]] = {}  # {(task, arm): {artefact: {case: failed}}}
    for number, artefact in enumerate(of_kind(artefacts, IMAGINED)):
        claimed = [line for line in recover_lines(artefact.folder / "episodes.jsonl") if line["imagined"]]
        if claimed:
            label = (artefact.record["config"]["task"], artefact.record["config"]["arm"])
            _add(found.setdefault(label, {}), number, [1.0 - line["real"] for line in claimed])
    return [asdict(outcome_row(task, arm, "false_success/imagined", cases)) for (task, arm), cases in found.items()]


def _add(cases: dict[int, dict[int, float]], number: int, values: Sequence[float]) -> None:
    """Add an artefact's ``values`` to ``cases`` under numbers of their own, since artefacts share no case."""
    cases[number] = dict(enumerate(values, start=sum(map(len, cases.values()))))


def reliabilities(artefacts: Sequence[Artefact]) -> list[Reliability]:
    """Return the reliability of each classifier that recorded it."""
    found = []
    for artefact in of_kind(artefacts, CLASSIFIER):
        if bins := artefact.record["measured"].get("reliability"):
            predicted, observed = (np.array([np.nan if x is None else x for x in bins[name]], float) for name in ("predicted", "observed"))
            threshold = artefact.record["measured"]["threshold"]
            found.append(Reliability(task_of(artefact, artefacts), predicted, observed, np.array(bins["count"], int), threshold))
    return found


def task_of(artefact: Artefact, artefacts: Sequence[Artefact]) -> str:
    """Return the task of a learned thing: that of the stores it was made from, or the only task around.

    A real robot's stores know the sentence that they were asked for, which is no name of a task in results.
    """
    by_fingerprint = {other.record["fingerprint"]: other for other in artefacts}
    for fingerprint in artefact.record["inputs"].values():
        source: Mapping[str, Any] = by_fingerprint[fingerprint].record["config"] if fingerprint in by_fingerprint else {}
        if TASK_NAME.match(source.get("task", "")):
            return source["task"]
    tasks = {other.record["config"]["task"] for other in of_kind(artefacts, "evaluation")}
    return tasks.pop() if len(tasks) == 1 else "unknown/unknown"
