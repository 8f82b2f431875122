"""Arms and paired differences from per-episode outcomes. Arms that started from different states are refused, never compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from robowm.errors import UserError, nearest
from robowm.evaluation.policies import METRICS, outcomes, read_episodes
from robowm.metrics.stats import SMALL_SAMPLE, outcome_pair, outcome_row
from robowm.report.folders import Artefact, of_kind
from robowm.report.study import REFERENCES, arm_order
from robowm.seeds import purpose_of

Lines = list[dict[str, Any]]
STEPS = "steps_to_success"  # of every start, a failure counts as the time limit
SOLVED = "steps_to_success@solved"  # of the starts that were solved; in a pair, of those that both arms solved


def evaluation_lines(artefacts: Sequence[Artefact]) -> Lines:
    """Return the per-episode lines of all finished evaluations on evaluation starts; tuning and validation runs are left out."""
    return read_episodes([artefact.folder for artefact in of_kind(artefacts, "evaluation") if is_published(artefact)])


def is_published(evaluation: Artefact) -> bool:
    """True for an evaluation on evaluation starts, the only ones that count."""
    return purpose_of(evaluation.record["seeds"][0]) == "evaluation"


def check_arms(lines: Lines, wanted: Sequence[str]) -> None:
    """Refuse a task that lacks one of the ``wanted`` arms, and arms of a task whose lists of starts differ; both are named."""
    if not lines:
        raise UserError("no finished evaluation on evaluation starts (100000 and up) was found; run the evaluations first")
    for task in dict.fromkeys(line["task"] for line in lines):
        arms = {line["arm"] for line in lines if line["task"] == task}
        if missing := [arm for arm in wanted if arm not in arms]:
            raise UserError(f"{task} lacks the arms {', '.join(missing)}; found {', '.join(arm_order(arms))}: run their evaluations first")
        _check_starts(task, lines, arm_order(arms))


def _check_starts(task: str, lines: Lines, arms: Sequence[str]) -> None:
    """Refuse arms that ran other starts than most of the others did."""
    starts = {(line["arm"], line["train_seed"]): set() for line in lines if line["task"] == task}
    for line in lines:
        if line["task"] == task:
            starts[line["arm"], line["train_seed"]].add(line["seed"])
    usual = max(starts.values(), key=lambda one: (sum(one == other for other in starts.values()), len(one)))
    odd = [(arm, seed) for arm, seed in starts if starts[arm, seed] != usual]
    if odd:
        arm, seed = odd[0]
        missing, extra = usual - starts[arm, seed], starts[arm, seed] - usual
        names = ", ".join(f"{arm} (training seed {seed})" for arm, seed in odd)
        raise UserError(
            f"{task}: {names} did not run the same starts as other arms: {arm} lacks {len(missing)} of them and has {len(extra)} more, "
            f"first {min(missing | extra)}; evaluate every arm on the same first_seed and episodes"
        )
    _check_train_seeds(task, {arm: {seed for other, seed in starts if other == arm} for arm in arms})


def _check_train_seeds(task: str, seeds: Mapping[str, set]) -> None:
    """Refuse trained arms that lack training seeds which others have."""
    every = set().union(*seeds.values())
    for arm, have in seeds.items():
        if arm not in REFERENCES and have != every:
            raise UserError(f"{task}: {arm} lacks training seeds {sorted(every - have)}; the other arms have them: evaluate them too")


def success_rows(lines: Lines, wanted: Sequence[str] = (), pairs: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return the rows of every task, arm and metric, arms in reading order, of equals the ``wanted`` in theirs.

    Metrics are success, those that ``pairs`` name, and what evaluations measured beside. An arm without any success has no row of steps on
    solved starts.
    """
    rows, steps = [], [metric for metric in (STEPS, SOLVED) if any(pair.get("metric") == metric for pair in pairs)]
    for task in dict.fromkeys(line["task"] for line in lines):
        found = {line["arm"] for line in lines if line["task"] == task}
        for arm in arm_order([*(arm for arm in wanted if arm in found), *sorted(found)]):
            measured = [name for line in lines if (line["task"], line["arm"]) == (task, arm) for name in line.get("measures", ())]
            for metric in (*METRICS, *steps, *dict.fromkeys(measured)):
                by_seed = {seed: starts for seed, starts in values(lines, task, arm, metric).items() if starts}
                if by_seed:
                    rows.append(asdict(outcome_row(task, arm, metric, by_seed)))
    return rows


def values(lines: Lines, task: str, arm: str, metric: str) -> dict[int, dict[int, float]]:
    """Return {training seed: {start: value}} of one arm, whatever the metric."""
    if metric in METRICS:
        return outcomes(lines, task, arm, metric)
    if metric in (STEPS, SOLVED):
        steps = outcomes(lines, task, arm, "steps")
        if metric == STEPS:
            return steps
        solved = outcomes(lines, task, arm, "success")
        return {seed: {start: value for start, value in starts.items() if solved[seed][start]} for seed, starts in steps.items()}
    return outcomes([{**line, **line.get("measures", {})} for line in lines], task, arm, metric)


def success_pairs(lines: Lines, pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the paired differences that were written down beforehand: ``{a, b, metric (success), task (all)}``.

    Steps on solved starts are compared on the starts that both arms solved, of the training seeds that have some.
    """
    rows = []
    for task in dict.fromkeys(line["task"] for line in lines):
        arms = {line["arm"] for line in lines if line["task"] == task}
        for pair in pairs:
            metric = pair.get("metric", "success")
            if pair.get("task", task) != task or metric not in (*METRICS, STEPS, SOLVED):
                continue
            for arm in (pair["a"], pair["b"]):
                if arm not in arms:
                    raise UserError(f"the pair {pair['a']} against {pair['b']} needs the arm {arm!r} on {task}; {nearest(arm, arms)}")
            sides = [values(lines, task, arm, metric) for arm in (pair["a"], pair["b"])]
            if metric == SOLVED:
                sides = _both_solved(*sides)
            if sides[0]:
                rows.append(asdict(outcome_pair(task, pair["a"], pair["b"], metric, *sides)))
    return rows


def _both_solved(a: Mapping[int, Mapping[int, float]], b: Mapping[int, Mapping[int, float]]) -> list[dict[int, dict[int, float]]]:
    """Return both sides on the starts that they share, training seeds without any left out."""
    shared = {seed: sorted(a[seed].keys() & b[seed].keys()) for seed in a.keys() & b.keys()}
    return [{seed: {start: side[seed][start] for start in starts} for seed, starts in sorted(shared.items()) if starts} for side in (a, b)]


def notes_of(train_seeds: set[int], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a reader must know: one training seed, small samples, goals that held at reset."""
    notes = []
    if len(train_seeds) == 1:
        notes.append("One training seed: the intervals are over starts and hold for these trained weights, not for another training run.")
    for row in rows:
        if row["metric"] == "success" and row["n"] < SMALL_SAMPLE:
            notes.append(f"{row['task']}, {row['arm']}: a small sample, n = {row['n']}; only its interval is known.")
    held = {row["task"]: row for row in rows if row["metric"] == "success_at_reset" and row["value"] > 0}
    for task, row in held.items():
        starts = f"{round(row['value'] * row['n'])} of {row['n']} starts"
        notes.append(f"{task}: the goal held at reset in {starts}; they count as failures of every arm.")
    return notes
