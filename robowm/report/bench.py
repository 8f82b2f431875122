"""Benches: what a results file takes over from them. They wrote rows, pairs and notes; nothing is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robowm.artefacts import ARTEFACT, REQUEST
from robowm.report.fidelity import is_kept
from robowm.report.folders import Artefact, of_kind, read_json

KIND, SUMMARY = "bench", "bench.json"


def split(artefacts: Sequence[Artefact]) -> tuple[list[Artefact], list[Artefact], list[Artefact]]:
    """Return the finished benches, what lies inside their folders, and everything else."""
    benches = of_kind(artefacts, KIND)
    inside = [a for a in artefacts if any(bench.folder in a.folder.parents for bench in benches)]
    return benches, inside, [a for a in artefacts if a not in inside]


def rows(benches: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return the rows that a results file keeps."""
    found = _all(benches, "rows")
    metrics = list(dict.fromkeys(row["metric"] for row in found))
    kept = {metric for metric in metrics if is_kept(metric, metrics)}
    return [row for row in found if row["metric"] in kept]


def pairs(benches: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return all paired differences."""
    return _all(benches, "pairs")


def notes(benches: Sequence[Artefact]) -> list[str]:
    """Return what the benches had to say."""
    return _all(benches, "notes")


def seconds(benches: Sequence[Artefact]) -> float:
    """Return how long they took, in seconds, from what was asked to what was found; a pause between two goes counts."""
    times = [[(bench.folder / name).stat().st_mtime for name in (REQUEST, ARTEFACT)] for bench in benches]
    return sum(end - start for start, end in times)


def _all(benches: Sequence[Artefact], part: str) -> list[Any]:
    return [entry for bench in benches for entry in read_json(bench.folder / SUMMARY)[part]]
