"""What the numbers say, in words: the same sentences head the page and end a demo's run. Nothing is said that the rows do not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robowm.report.schema import FIDELITY, SHARES, lower_is_better, task_and_actions
from robowm.report.study import action_set_label, arm_order, is_control, is_new, pairs_of, rows_of, tasks

MINUS = "\N{MINUS SIGN}"
UNSURE = "no sure difference"
ENOUGH, LEVEL = 10, 0.05  # starts that a sure difference needs at least, and p that it has at most
MOST_LINES, MOST_DIFFERENCES = 8, 48  # on pairs of world models, at the head of a page


def percent(share: float) -> str:
    """Return ``31.2 %``."""
    return f"{100 * share:.1f} %"


def number(value: float, metric: str, *, signed: bool = False) -> str:
    """Return ``value`` in the units of ``metric``: per cent (points where signed) for shares, else three or four figures."""
    if metric in SHARES or metric.partition("/")[0] in ("precision", "recall", "false_success"):
        text = f"{100 * value:{'+' if signed else ''}.1f}"
    elif metric.startswith("psnr"):
        text = f"{value:{'+' if signed else ''}.2f}"
    else:
        text = f"{value:{'+' if signed else ''}.3g}" if abs(value) >= 10 else f"{value:{'+' if signed else ''}.3f}"
    if not text.strip("+-0."):
        text = text.lstrip("+-")  # nought has no sign
    return text.replace("-", MINUS)


def interval(entry: Mapping[str, Any], *, signed: bool = False) -> str:
    """Return ``[25.0, 38.0]`` for a row or pair."""
    return f"[{number(entry['low'], entry['metric'], signed=signed)}, {number(entry['high'], entry['metric'], signed=signed)}]"


def is_sure(pair: Mapping[str, Any]) -> bool:
    """True where the interval leaves zero out, the sign test's p (where known) is small, and there are enough starts for either."""
    p = pair.get("p")
    return pair["n"] >= ENOUGH and not pair["low"] <= 0 <= pair["high"] and (p is None or p <= LEVEL)


def verdict(pair: Mapping[str, Any]) -> str:
    """Return ``better``, ``worse`` or ``no sure difference`` for a minus b."""
    if not is_sure(pair):
        return UNSURE
    return "better" if (pair["diff"] > 0) != lower_is_better(pair["metric"]) else "worse"


def p_value(p: float | None) -> str:
    """Return ``0.031`` or ``1.2e-07``, nothing where it is not known."""
    return "" if p is None else f"{p:.2g}" if p < 0.001 else f"{p:.3f}"


def sentence(pair: Mapping[str, Any]) -> str:
    """Return one sentence about a pair of success rates that surely differ."""
    task = pair["task"].rpartition("/")[2]
    size = f"{number(abs(pair['diff']), pair['metric'])} points"
    how = f"{interval(pair, signed=True)}, n = {pair['n']:,}"
    said = verdict(pair)
    return f"On {task}, {pair['a']} succeeds {size} {'more' if said == 'better' else 'less'} often than {pair['b']} {how}."


def headline(results: Mapping[str, Any]) -> list[str]:
    """Return the page's first lines: what improved, by how much and how surely, or that nothing did; then all that was compared."""
    pairs = pairs_of(results, metric="success")
    improved = [pair for pair in pairs if is_new(pair["a"]) and verdict(pair) == "better"]
    lines = [sentence(pair) for pair in improved]
    models = _compared_models(results)
    if not pairs and not models:
        lines = ["No comparison was written down for this study, so it claims no improvement."]
    elif pairs and not improved:
        lines = [
            f"Nothing improved surely: no compared arm has its 95 % interval above zero, p up to {LEVEL:g} and {ENOUGH} starts or more."
        ]
    lines += [sentence(pair) for pair in pairs if pair not in improved and is_sure(pair)]
    return lines + _not_sure(pairs) + _rates(results) + _false_successes(results) + models + _world_model(results)


def _compared_models(results: Mapping[str, Any]) -> list[str]:
    """Return lines about pairs of world models: the difference of each metric and what can be said of it. Of many pairs, one line a task:
    how every arm stands to what the first pair is measured against, in the first metric."""
    found: dict[str, dict[tuple[str, str], list[Mapping[str, Any]]]] = {}
    for pair in results["pairs"]:
        metric = pair["metric"].removesuffix("@mean")
        if metric.partition("/")[0] in FIDELITY and metric != pair["metric"] and not (is_control(pair["a"]) or is_control(pair["b"])):
            found.setdefault(pair["task"], {}).setdefault((pair["a"], pair["b"]), []).append(pair)
    count = sum(map(len, found.values()))
    if count <= MOST_LINES and sum(len(pairs) for by_arms in found.values() for pairs in by_arms.values()) <= MOST_DIFFERENCES:
        return [_model_line(task, *arms, pairs) for task, by_arms in found.items() for arms, pairs in by_arms.items()]
    lines = [_standing(task, [pairs[0] for pairs in by_arms.values()]) for task, by_arms in found.items()]
    return [*lines, f"All {count} comparisons of world models, in every metric, stand below."]


def _standing(task: str, pairs: Sequence[Mapping[str, Any]]) -> str:
    """Return a line on each arm against the first pair's ``b``."""
    base, metric = pairs[0]["b"], pairs[0]["metric"].removesuffix("@mean")
    groups: dict[str, list[str]] = {"better": [], "worse": [], UNSURE: []}
    for pair in pairs:
        if pair["b"] == base:
            groups[verdict(pair)].append(f"{pair['a']} {_size(pair)}")
    said = "; ".join(f"{name}: {', '.join(arms)}" for name, arms in groups.items() if arms)
    return f"Against {base} on {action_set_label(task)}, {metric.replace('/', ' ')}: {said}."


def _model_line(task: str, a: str, b: str, pairs: Sequence[Mapping[str, Any]]) -> str:
    said = []
    for pair in pairs:
        metric = pair["metric"].removesuffix("@mean")
        known = f", p = {p_value(pair['p'])}" if pair.get("p") is not None else ""
        said.append(f"{metric.replace('/', ' ')} {_size(pair)} ({verdict(pair)}{known})")
    return f"{a} against {b} on {action_set_label(task)}: {'; '.join(said)}."


def _size(pair: Mapping[str, Any]) -> str:
    """Return ``+0.40 [+0.30, +0.50]``, with n where that is not sure."""
    count = "" if is_sure(pair) else f", n = {pair['n']:,}"
    return f"{number(pair['diff'], pair['metric'], signed=True)} {interval(pair, signed=True)}{count}"


def _not_sure(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line per task with the pairs that do not surely differ."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        if not is_sure(pair):
            found.setdefault(pair["task"], []).append(f"{pair['a']} against {pair['b']} ({_size(pair)})")
    return [f"No sure difference on {task.rpartition('/')[2]}: {', '.join(said)}." for task, said in found.items()]


def _rates(results: Mapping[str, Any]) -> list[str]:
    lines = []
    for task in tasks(results):
        rows = {row["arm"]: row for row in rows_of(results, task=task, metric="success")}
        shown = ", ".join(f"{arm} {number(rows[arm]['value'], 'success')} %" for arm in arm_order(rows))
        lines.append(f"Success on {task.rpartition('/')[2]}: {shown}.")
    return lines


def _false_successes(results: Mapping[str, Any]) -> list[str]:
    """Return one line on how many imagined successes did not hold."""
    rows = rows_of(results, metric="false_success/imagined")
    shown = ", ".join(f"{number(r['value'], r['metric'])} % {interval(r)} on {r['task'].rpartition('/')[2]} (n = {r['n']:,})" for r in rows)
    return [f"Imagined successes that fail when executed: {shown}."] if rows else []


def _world_model(results: Mapping[str, Any]) -> list[str]:
    """Return one line per task: the model's PSNR above that of copying the last frame, for each action set and camera."""
    found: dict[str, dict[str, list[str]]] = {}
    for pair in results["pairs"]:
        metric, _, camera = pair["metric"].partition("/")
        if metric == "psnr" and (pair["a"], pair["b"]) == ("world_model", "copy_last") and camera.endswith("@mean"):
            task, actions = task_and_actions(pair["task"])
            sure = "" if is_sure(pair) else f" ({UNSURE}, n = {pair['n']:,})"
            gain = f"{number(pair['diff'], pair['metric'], signed=True)} dB {camera.partition('@')[0]}{sure}"
            found.setdefault(task, {}).setdefault(actions, []).append(gain)
    return [
        f"World model over copying the last frame on {task.rpartition('/')[2]} (mean PSNR): "
        + "; ".join(f"{actions.replace('_', '-')} actions {', '.join(gains)}" for actions, gains in sets.items())
        + "."
        for task, sets in found.items()
    ]


def format_table(results: Mapping[str, Any]) -> str:
    """Return the arms and the compared pairs as text for a terminal."""
    lines: list[str] = []
    for task in tasks(results):
        rows = {row["arm"]: row for row in rows_of(results, task=task, metric="success")}
        at_end = {row["arm"]: row for row in rows_of(results, task=task, metric="success_at_end")}
        body = [["arm", "success", "95 %", "at end", "n"]]
        for arm in arm_order(rows):
            row = rows[arm]
            last = number(at_end[arm]["value"], "success") if arm in at_end else ""
            body.append([arm, number(row["value"], "success"), interval(row), last, f"{row['n']:,}"])
        lines += [f"{task}: success in % of starts", *_aligned(body), ""]
    if pairs := pairs_of(results, metric="success"):
        body = [["paired difference", "points", "95 %", "wins", "losses", "n", ""]]
        for pair in pairs:
            name = f"{pair['a']} - {pair['b']}" + (f" ({pair['task'].rpartition('/')[2]})" if len(tasks(results)) > 1 else "")
            shares = [percent(pair["wins"]), percent(pair["losses"])]
            difference = number(pair["diff"], "success", signed=True)
            body.append([name, difference, interval(pair, signed=True), *shares, f"{pair['n']:,}", verdict(pair)])
        lines += [*_aligned(body), ""]
    return "\n".join(lines + [f"note: {note}" for note in results["notes"]]).rstrip() + "\n"


def _aligned(body: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in body) for i in range(len(body[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in body
    ]
