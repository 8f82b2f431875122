"""What a results file is, and the check that a file is one.

A results file is the only source of the README's tables and of the report. It holds ``study``, ``command``, ``commit``, ``date``,
``machine``, ``versions``, ``seconds``, ``train_seeds``, ``eval_seeds`` (first and last), ``rows``, ``pairs`` and ``notes``. ``low`` and
``high`` bound 95 %. ``n`` of a row counts (training seed, start) pairs, never frames; ``n`` of a pair counts starts, whatever the number of
training seeds, ``wins`` is the share of starts with a above b in the mean over training seeds, ``losses`` with a below, also where lower is
better, and a pair may hold ``p``, the exact two-sided sign test of one against the other. ``eval_seeds`` is empty where only recorded
episodes were predicted and some do not start from evaluation seeds.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from robowm.errors import UserError, nearest
from robowm.seeds import SEED_RANGES

SHARES = ("success", "success_at_end", "success_at_reset")  # metrics of one episode that are 0 or 1
FIDELITY = ("psnr", "ssim", "lpips", "psnr_object", "psnr_gripper")
LOWER_IS_BETTER = (
    "lpips",
    "action_error",
    "steps_to_success@solved",
    "steps_to_success",
    "ece",
    "false_success",
    "collapsed",
    "seconds",
    "latency_ms",
    "rss_mib",
)

_FIDELITY_NAME = re.compile(rf"^({'|'.join(FIDELITY)})/[A-Za-z0-9_]+@([1-9]\d*|[a-z][a-z0-9_]*)$")  # @mean, @frame or @regime
_OTHER_NAME = re.compile(r"^[a-z_0-9]+(/[A-Za-z0-9_+\-.]+)?(@[A-Za-z0-9_]+)?$")
TASK_NAME = re.compile(r"^[a-z0-9_]+/[a-z0-9_\-]+(:[a-z0-9_]+)?$")

_TOP = {
    "study": str,
    "command": str,
    "commit": str,
    "date": str,
    "machine": dict,
    "versions": dict,
    "seconds": (int, float),
    "train_seeds": list,
    "eval_seeds": list,
    "rows": list,
    "pairs": list,
    "notes": list,
}
_ROW = {"task": str, "arm": str, "metric": str, "value": (int, float), "low": (int, float), "high": (int, float), "n": int}
_PAIR = {
    "task": str,
    "a": str,
    "b": str,
    "metric": str,
    "diff": (int, float),
    "low": (int, float),
    "high": (int, float),
    "n": int,
    "wins": (int, float),
    "losses": (int, float),
}
_PAIR_OPTIONAL = {"p": (int, float, type(None))}
_MACHINE = {"cpus": int, "gpu": (str, type(None)), "renderer": str}


def findings(results: Any) -> list[str]:
    """Return every way in which ``results`` is not a results file, one line each; an empty list means that it is one."""
    found = list(_shape(results, _TOP, "results"))
    if found:
        return found
    found += _shape(results["machine"], _MACHINE, "machine")
    found += _header(results)
    for i, row in enumerate(results["rows"]):
        found += list(_shape(row, _ROW, f"rows[{i}]")) or _row(row, f"rows[{i}]")
    for i, pair in enumerate(results["pairs"]):
        found += list(_shape(pair, _PAIR, f"pairs[{i}]", _PAIR_OPTIONAL)) or _pair(pair, f"pairs[{i}]")
    if not found:
        found += _duplicates(results)
        found += _pairs_without_rows(results)
    return found


def check_results(results: Any, where: str | Path = "results") -> None:
    """Raise ``UserError`` with the first findings if ``results`` does not follow the schema."""
    if found := findings(results):
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise UserError(f"{where} is not a results file: {'; '.join(found[:3])}{more}; write it again with the command that makes it")


def read_results(path: str | Path) -> dict[str, Any]:
    """Return the checked content of a results file."""
    path = Path(path)
    if not path.is_file():
        known = sorted(p.name for p in path.parent.glob("*.json")) if path.parent.is_dir() else []
        raise UserError(f"{path} does not exist; {nearest(path.name, known)}")
    try:
        results = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not valid JSON ({error}); write it again with the command that makes it") from error
    check_results(results, path)
    return results


def task_and_actions(task: str) -> tuple[str, str]:
    """Split ``tabletop/pick_place:open_loop`` into task and action set (``expert`` when none is named)."""
    name, _, actions = task.partition(":")
    return name, actions or "expert"


def lower_is_better(metric: str) -> bool:
    """True where a smaller number is the better one."""
    return metric.partition("/")[0] in LOWER_IS_BETTER


def _shape(value: Any, fields: Mapping[str, Any], where: str, optional: Mapping[str, Any] | None = None) -> Iterable[str]:
    if not isinstance(value, Mapping):
        yield f"{where} is a {type(value).__name__}, expected an object"
        return
    fields = {**fields, **(optional or {})}
    for name, kind in fields.items():
        if name not in value:
            if name not in (optional or {}):
                yield f"{where} lacks {name!r}"
        elif not isinstance(value[name], kind) or (isinstance(value[name], bool) and kind is not bool):
            yield f"{where}.{name} is {value[name]!r}, a {type(value[name]).__name__}"
    for name in value:
        if name not in fields:
            yield f"{where} has an unknown key {name!r}, {nearest(name, fields)}"


def _header(results: Mapping[str, Any]) -> list[str]:
    found = []
    try:
        datetime.date.fromisoformat(results["date"][:10])
    except ValueError:
        found.append(f"date is {results['date']!r}, expected YYYY-MM-DD")
    found += [f"{name} is empty" for name in ("study", "command", "commit") if not results[name].strip()]
    if not _finite(results["seconds"]) or results["seconds"] < 0:
        found.append(f"seconds is {results['seconds']!r}, expected a number >= 0")
    if not all(_whole(seed) for seed in results["train_seeds"]) or len(set(results["train_seeds"])) != len(results["train_seeds"]):
        found.append(f"train_seeds is {results['train_seeds']}, expected different whole numbers")
    if results["eval_seeds"] or any(isinstance(row, Mapping) and row.get("metric") in SHARES for row in results["rows"]):
        found += _eval_seeds(results["eval_seeds"])
    found += [f"notes[{i}] is not text" for i, note in enumerate(results["notes"]) if not isinstance(note, str)]
    found += [f"versions.{name} is not text" for name, version in results["versions"].items() if not isinstance(version, str)]
    return found


def _eval_seeds(seeds: list[Any]) -> list[str]:
    if len(seeds) != 2 or not all(_whole(seed) for seed in seeds) or seeds[0] > seeds[1]:
        return [f"eval_seeds is {seeds}, expected [first, last]"]
    if seeds[0] not in (allowed := SEED_RANGES["evaluation"]) or seeds[1] not in allowed:
        return [f"eval_seeds is {seeds}, outside the evaluation range [{allowed.start}, {allowed.stop - 1}]"]
    return []


def _row(row: Mapping[str, Any], where: str) -> list[str]:
    found = _names(row, where)
    if not row["arm"]:
        found.append(f"{where}.arm is empty")
    if row["n"] < 1:
        found.append(f"{where}.n is {row['n']}, expected >= 1")
    if not all(_finite(row[name]) for name in ("value", "low", "high")):
        found.append(f"{where} ({row['arm']}, {row['metric']}) is not finite")
    elif not row["low"] <= row["value"] <= row["high"]:
        found.append(
            f"{where} ({row['arm']}, {row['metric']}) has low {row['low']}, value {row['value']}, high {row['high']}: out of order"
        )
    elif row["metric"] in SHARES and not 0 <= row["low"] <= row["high"] <= 1:
        found.append(f"{where} ({row['arm']}, {row['metric']}) leaves [0, 1]")
    return found


def _pair(pair: Mapping[str, Any], where: str) -> list[str]:
    found = _names(pair, where)
    label = f"{where} ({pair['a']} against {pair['b']}, {pair['metric']})"
    if pair["a"] == pair["b"]:
        found.append(f"{label} compares an arm with itself")
    if pair["n"] < 1:
        found.append(f"{label} has n {pair['n']}, expected >= 1")
    if not all(_finite(pair[name]) for name in ("diff", "low", "high", "wins", "losses")):
        found.append(f"{label} is not finite")
    elif not pair["low"] <= pair["diff"] <= pair["high"]:
        found.append(f"{label} has low {pair['low']}, diff {pair['diff']}, high {pair['high']}: out of order")
    elif min(pair["wins"], pair["losses"]) < 0 or pair["wins"] + pair["losses"] > 1 + 1e-9:
        found.append(f"{label} has wins {pair['wins']} and losses {pair['losses']}: not shares of n")
    if (p := pair.get("p")) is not None and not (_finite(p) and 0 <= p <= 1):
        found.append(f"{label} has p {p!r}, expected 0 to 1")
    return found


def _names(entry: Mapping[str, Any], where: str) -> list[str]:
    found = []
    if not TASK_NAME.match(entry["task"]):
        found.append(f"{where}.task is {entry['task']!r}, expected suite/task or suite/task:action_set")
    metric = entry["metric"]
    pattern = _FIDELITY_NAME if metric.partition("/")[0] in FIDELITY else _OTHER_NAME
    if not pattern.match(metric):
        found.append(f"{where}.metric is {metric!r}, expected a name such as success, psnr/external@mean or seconds/train-policy")
    return found


def _duplicates(results: Mapping[str, Any]) -> list[str]:
    keys = [("row", r["task"], r["arm"], r["metric"]) for r in results["rows"]]
    keys += [("pair", p["task"], p["a"], p["b"], p["metric"]) for p in results["pairs"]]
    return [f"{' '.join(key)} appears more than once" for key in sorted({key for key in keys if keys.count(key) > 1})]


def _pairs_without_rows(results: Mapping[str, Any]) -> list[str]:
    rows = {(r["task"], r["arm"], r["metric"]) for r in results["rows"]}
    return [
        f"pair {p['a']} against {p['b']} ({p['task']}, {p['metric']}) has no row of arm {arm!r}"
        for p in results["pairs"]
        for arm in (p["a"], p["b"])
        if (p["task"], arm, p["metric"]) not in rows
    ]


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
