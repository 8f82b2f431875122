"""Tables of world models: fidelity by arm, paired comparisons, regimes, how actions are followed, long rolls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from robowm.report import html, words
from robowm.report.schema import FIDELITY, SHARES, lower_is_better
from robowm.report.study import is_control, pairs_of, rows_of
from robowm.report.words import interval, number

ACTION_ERROR = "action_error"
BEHIND = ":"  # stands between a model's name and that of its control
LONG_ROLL = ("contrast", "change", "collapsed")  # metrics of long rolls ...
LONG_ROLL_ONCE = (
    "seconds/chunk@first",
    "seconds/chunk@last",
    "ratio/seconds_per_chunk",
    "rss_mib/long_roll@first",
    "rss_mib/long_roll@last",
)
TENTHS = (1, 5, 10)  # that the page shows
_MODEL_ARMS = ("world_model", "copy_last", "shuffled_actions")


def fidelity_table(results: Mapping[str, Any], task: str) -> str:
    """Return the means over all predicted frames, a row per metric and camera, a column per arm."""
    rows = [row for row in rows_of(results, task=task) if row["metric"].endswith("@mean")]
    found = {(row["arm"], row["metric"]): row for row in rows}
    gains = {pair["metric"]: pair for pair in results["pairs"] if (pair["task"], pair["a"], pair["b"]) == (task, *_MODEL_ARMS[:2])}

    def gain(metric: str) -> str:
        if (pair := gains.get(metric)) is None:
            return ""
        model, baseline = (found[arm, metric]["value"] for arm in _MODEL_ARMS[:2])
        ratio = f", {model / baseline:.2f}x" if metric.startswith("lpips") and baseline else ""
        return f"{number(pair['diff'], metric, signed=True)} {interval(pair, signed=True)}{ratio}"

    return _by_arm(rows, "mean over frames", {f"{_MODEL_ARMS[0]} minus {_MODEL_ARMS[1]}": gain} if gains else {})


def comparisons(results: Mapping[str, Any], task: str) -> str:
    """Return the paired differences of models from each other, and those from controls folded."""
    pairs = [pair for pair in pairs_of(results, task=task) if pair["metric"] not in SHARES]
    shown = [pair for pair in pairs if pair["metric"].endswith("@mean") and not is_control(pair["a"]) and not is_control(pair["b"])]
    if not shown:
        return ""
    rest = [pair for pair in pairs if pair not in shown]
    folded = f"<details><summary>{len(rest)} more: controls, regimes, actions</summary>{pairs_table(rest)}</details>\n" if rest else ""
    return pairs_table(shown) + folded


def pairs_table(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Return paired differences with their intervals, wins and losses, the sign test's p where it is known, and a verdict."""
    with_p = any(pair.get("p") is not None for pair in pairs)
    rows = [
        [
            f"{pair['a']} minus {pair['b']}" + ("" if pair["metric"] == "success" else f", {pair['metric']}"),
            number(pair["diff"], pair["metric"], signed=True),
            interval(pair, signed=True),
            *(words.percent(share) for share in won_and_lost(pair)),
            *([words.p_value(pair.get("p"))] if with_p else []),
            f"{pair['n']:,}",
            words.verdict(pair),
        ]
        for pair in pairs
    ]
    head = ["paired difference", "diff", "95 %", "wins", "losses", *(["p"] if with_p else []), "n", "verdict"]
    return html.table(head, rows, words=(0, len(head) - 1))


def won_and_lost(pair: Mapping[str, Any]) -> tuple[float, float]:
    """Return the shares of pairs that a did better and worse in; a results file counts a above b as a win, whatever the metric."""
    return (pair["losses"], pair["wins"]) if lower_is_better(pair["metric"]) else (pair["wins"], pair["losses"])


def regime_table(results: Mapping[str, Any], task: str) -> str:
    """Return fidelity over the frames of each regime alone, a table each."""
    rows = [row for row in rows_of(results, task=task) if _is_regime(row["metric"])]
    regimes = dict.fromkeys(row["metric"].partition("@")[2] for row in rows)
    return "".join(_by_arm([row for row in rows if row["metric"].endswith(f"@{name}")], f"frames: {name}") for name in regimes)


def action_table(results: Mapping[str, Any]) -> str:
    """Return how far the actions read off each arm's pictures lie from the commanded ones."""
    rows = [row for row in results["rows"] if row["metric"].partition("/")[0] == ACTION_ERROR]
    if not rows:
        return ""
    return (
        "<p>A network trained on real frames reads the action between two consecutive ones; the error is in units of half the action's "
        "range. Real held-out frames are the floor; a model that follows its actions comes close to it, a control does not.</p>\n"
        + _by_arm(rows, "mean absolute error")
    )


def long_roll_table(results: Mapping[str, Any]) -> str:
    """Return speed, memory and picture over one long roll of each model."""
    rows = [row for row in results["rows"] if is_of_long_roll(row["metric"])]
    shown = [row for row in rows if "@tenth_" not in row["metric"] or int(row["metric"].rpartition("_")[2]) in TENTHS]
    if not shown:
        return ""
    return (
        "<p>One roll from one real frame, recorded actions over and over. Contrast (deviation over pixels) and change (from frame to "
        "frame) are ratios to real frames: an episode has collapsed where either is gone or has run wild in the last tenth. Seconds are "
        "medians per chunk, memory is the process's own; first and last are tenths of the roll.</p>\n" + _by_arm(shown, "over the roll")
    )


def is_of_long_roll(metric: str) -> bool:
    """True for a metric that a long roll gives."""
    return metric.partition("/")[0] in LONG_ROLL or metric in LONG_ROLL_ONCE


def _is_regime(metric: str) -> bool:
    name, _, at = metric.partition("@")
    return name.partition("/")[0] in FIDELITY and at != "mean" and not at.isdigit()


def _by_arm(rows: Sequence[Mapping[str, Any]], what: str, more: Mapping[str, Any] | None = None) -> str:
    """Return a table of arms and metrics, the longer of the two down the page; ``more`` {heading: metric -> cell} stands behind arms."""
    found = {(row["arm"], row["metric"]): row for row in rows}
    names = list(dict.fromkeys(row["arm"] for row in rows))
    arms = [arm for arm in _MODEL_ARMS[:1] if arm in names] + sorted((a for a in names if a not in _MODEL_ARMS[:1]), key=is_control)

    def cell(arm: str, metric: str) -> str:
        if (row := found.get((arm, metric))) is None:
            return ""
        return number(row["value"], metric) + (f" {interval(row)}" if row["low"] < row["high"] else "")

    several = len({row["n"] for row in rows}) > 1
    metrics = dict.fromkeys(metric for _, metric in found)
    extra = more or {}
    head = [what, *arms, *extra]
    body = [[_heading(metric), *(cell(arm, metric) for arm in arms), *(column(metric) for column in extra.values())] for metric in metrics]
    counts = [_count(row for row in rows if row["metric"] == metric) for metric in metrics]
    if len(arms) > len(metrics):
        head, *body = zip(head, *body, strict=True)
        counts = [*(_count(row for row in rows if row["arm"] == arm) for arm in arms), *([""] * len(extra))]
    if several:
        head, body = [*head, "n"], [[*line, count] for line, count in zip(body, counts, strict=True)]
    return html.table(head, body, caption="" if several else f"n = {rows[0]['n']:,}") if rows else ""


def _count(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return how many episodes ``rows`` are over: a number, or the least and the most."""
    counts = sorted({row["n"] for row in rows})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"


def _heading(metric: str) -> str:
    name, _, at = metric.partition("@")
    words = [*name.split("/"), at] if at and not _is_regime(metric) and at != "mean" else name.split("/")
    return ", ".join(words).replace("_", " ")
