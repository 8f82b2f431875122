"""Rows about learned things: fidelity of world models, the success classifier's precision and recall, its mistakes on imagined episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from robowm.metrics.stats import wilson
from robowm.report.folders import Artefact, of_kind
from robowm.report.study import Reliability
from robowm.types import EvalRow

CLASSIFIER = "success_classifier"


def rows(artefacts: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return every row about a learned thing."""
    return classifier_rows(artefacts)


def pairs(artefacts: Sequence[Artefact], wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the paired differences between world models that were written down beforehand."""
    return []


def classifier_rows(artefacts: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return precision and recall on real held-out episodes; counts of several classifiers of a task are added up."""
    counts: dict[str, np.ndarray] = {}  # {task: true positives, false positives, false negatives}
    for artefact in of_kind(artefacts, CLASSIFIER):
        found = artefact.record["measured"]["confusion"]
        added = np.array([found["true_positive"], found["false_positive"], found["false_negative"]])
        task = task_of(artefact, artefacts)
        counts[task] = counts.get(task, 0) + added
    rows = []
    for task, (hits, false_alarms, misses) in counts.items():
        for metric, total in (("precision", hits + false_alarms), ("recall", hits + misses)):
            if total:
                interval = wilson(int(hits), int(total))
                row = EvalRow(task, CLASSIFIER, f"{metric}/{CLASSIFIER}", interval.value, interval.low, interval.high, interval.n)
                rows.append(asdict(row))
    return rows


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
    """Return the task of a learned thing: that of the stores it was made from, or the only task around."""
    by_fingerprint = {other.record["fingerprint"]: other for other in artefacts}
    for fingerprint in artefact.record["inputs"].values():
        source: Mapping[str, Any] = by_fingerprint[fingerprint].record["config"] if fingerprint in by_fingerprint else {}
        if "task" in source:
            return source["task"]
    tasks = {other.record["config"]["task"] for other in of_kind(artefacts, "evaluation")}
    return tasks.pop() if len(tasks) == 1 else "unknown/unknown"
