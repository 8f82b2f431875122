"""Turns the finished artefacts under a run's folder into one results file. Reads JSON and JSON lines alone; needs no torch.

What it finds, by the kind of artefact: evaluations (arms, paired differences), world-model evaluations (fidelity over the horizon),
success classifiers (precision and recall), HABC's critics and weights (ranking, calibration, effective sample size), imagined-against-real
comparisons (false successes), benches of world models (rows and pairs as they are) and the ledger of stages (seconds).
"""

from __future__ import annotations

import datetime
import functools
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robowm.artefacts import provenance, write_text
from robowm.report import arms, bench, classifier, fidelity, folders, habc
from robowm.report.folders import Artefact
from robowm.report.schema import check_results
from robowm.report.study import Stage
from robowm.seeds import purpose_of
from robowm.types import EvalRow

RESULTS = "results.json"


def gather(
    folder: Path | str,
    *,
    study: str,
    command: str,
    pairs: Sequence[Mapping[str, Any]] = (),
    wanted_arms: Sequence[str] = (),
    notes: Sequence[str] = (),
    artefacts: Sequence[Artefact] | None = None,
    stages: Sequence[Stage] = (),
) -> dict[str, Any]:
    """Return the checked results of everything finished under ``folder``.

    ``pairs`` ({a, b, metric, task}) and ``wanted_arms`` come from the experiment's config, written before the run. Raises UserError where
    an arm is missing or arms ran different starts.
    """
    artefacts = folders.find_artefacts(folder) if artefacts is None else artefacts
    lines = arms.evaluation_lines(artefacts)
    benches, units, others = bench.split(artefacts)
    scores = fidelity.read_scores(others)
    if lines or not (scores or benches):
        arms.check_arms(lines, wanted_arms)
    rows = arms.success_rows(lines, wanted_arms, pairs)
    measured = [*rows, *fidelity.rows(scores), *bench.rows(benches), *classifier.rows(artefacts), *habc.rows(artefacts)]
    train_seeds, starts = _seeds(lines, {**scores, **fidelity.read_scores(units)})
    published = bool(lines) or {purpose_of(seed) for seed in starts} == {"evaluation"}
    where = provenance()
    commits = sorted({artefact.record["made_with"]["commit"] for artefact in artefacts})
    results = {
        "study": study,
        "command": command,
        "commit": commits[0] if len(commits) == 1 else where["commit"],
        "date": datetime.date.today().isoformat(),
        "machine": {"cpus": where["cpus"], "gpu": gpu_name(), "renderer": _renderer(artefacts)},
        "versions": where["versions"],
        "seconds": round(_span(stages) or bench.seconds(benches), 1),
        "train_seeds": sorted(train_seeds),
        "eval_seeds": [min(starts), max(starts)] if published else [],
        "rows": [*map(_rounded, [*measured, *_second_rows(stages, measured[0]["task"])])],
        "pairs": [*map(_rounded, [*arms.success_pairs(lines, pairs), *fidelity.pairs(scores, pairs), *bench.pairs(benches)])],
        "notes": [*arms.notes_of(train_seeds, rows), *habc.notes(lines), *bench.notes(benches), *_commit_notes(commits), *notes],
    }
    check_results(results, folder)
    return results


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write a checked results file, atomically, one row a line."""
    check_results(results, path)
    head = {name: value for name, value in results.items() if name not in ("rows", "pairs", "notes")}
    text = json.dumps(head, indent=2)[:-2]
    for name in ("rows", "pairs", "notes"):
        entries = ",\n    ".join(json.dumps(entry, ensure_ascii=False) for entry in results[name])
        text += f',\n  "{name}": [' + (f"\n    {entries}\n  ]" if entries else "]")
    write_text(path, text + "\n}\n")


@functools.cache
def gpu_name() -> str | None:
    """Return the name of the first GPU of this machine, or None."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    done = subprocess.run([tool, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    return (done.stdout.strip().splitlines() or [None])[0] if done.returncode == 0 else None


def _seeds(lines: Sequence[Mapping[str, Any]], scores: Mapping[tuple[str, str], fidelity.Scores]) -> tuple[set[int], set[int]]:
    """Return the training seeds and the starts of policies, in a study without any those of world models."""
    if lines:
        return {line["train_seed"] for line in lines if line["arm"] not in arms.REFERENCES} or {0}, {line["seed"] for line in lines}
    both = [pair for found in scores.values() for starts in found.starts for pair in starts]
    return {train_seed for train_seed, _ in both}, {start for _, start in both}


def _span(stages: Sequence[Stage]) -> float:
    """Return the seconds from the first start to the last end, or the sum where starts are not known."""
    if stages and all(stage.start is not None for stage in stages):
        return max(stage.start + stage.seconds for stage in stages) - min(stage.start for stage in stages)
    return sum(stage.seconds for stage in stages)


def _second_rows(stages: Sequence[Stage], task: str) -> list[dict[str, Any]]:
    """Return ``seconds/<stage>`` rows; a stage that ran for several units gives their sum, n counts them."""
    taken: dict[str, list[float]] = {}
    for stage in stages:
        taken.setdefault(stage.name, []).append(stage.seconds)
    totals = {name: (sum(seconds), len(seconds)) for name, seconds in taken.items()}
    return [asdict(EvalRow(task, "flywheel", f"seconds/{name}", total, total, total, n)) for name, (total, n) in totals.items()]


def _rounded(entry: Mapping[str, Any]) -> dict[str, Any]:
    def short(name: str, value: Any) -> Any:
        return value if not isinstance(value, float) else float(f"{value:.3g}") if name == "p" else round(value, 6)  # p may be tiny

    return {name: short(name, value) for name, value in entry.items()}


def _renderer(artefacts: Sequence[Artefact]) -> str:
    names = {artefact.record["made_with"]["renderer"] for artefact in folders.of_kind(artefacts, "evaluation")} - {""}
    return ", ".join(sorted(names)) or provenance()["renderer"]


def _commit_notes(commits: Sequence[str]) -> list[str]:
    return [f"Made by {len(commits)} commits: {', '.join(commits)}; the report's own is given."] if len(commits) > 1 else []
