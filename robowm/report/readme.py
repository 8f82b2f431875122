"""Keeps the tables of README.md and docs/results.md equal to ``results/*.json``.

``python -m robowm.report.readme`` rewrites what stands between the markers of each.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from robowm.artefacts import write_text
from robowm.errors import UserError
from robowm.report.arms import SOLVED, STEPS
from robowm.report.models import won_and_lost
from robowm.report.study import arm_order

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
COMPARED = {  # {metric of a pair of policies: (what it is called, decimals)}
    "success": ("success, same starts", 3),
    STEPS: ("steps to success, fewer are better, a failure counts as the time limit", 1),
    SOLVED: ("steps to success, of the starts that both solved", 1),
}
MODEL_METRICS = {"psnr": "PSNR (dB)", "ssim": "SSIM", "lpips": "LPIPS"}
FOREGROUND = ("psnr_object", "psnr_gripper")  # PSNR of the pixels that show them, a table of their own
DIGITS = {"psnr": 2, "ssim": 3, "lpips": 4}
MODEL_ARMS = ("world_model", "base", "robowm", "diffusers", "copy_last", "shuffled_actions")
MEASURED = (
    "fps/rollout",
    "ratio/rollout",
    "achieved_hz",
    "camera_hz",
    "repeated_pictures",
    "load_average",
    "labels_dropped",
    "rss_growth",
    "kill_points",
    "episodes_lost_beyond_bound",
    "estop_ms",
    "action_error/expert",
    "action_error/perturbed",
    "action_error/open_loop",
    "action_error/counterfactual",
    "collapsed/long_roll",
    "ratio/seconds_per_chunk",
    "rss_mib/long_roll",
)
CONTROLS = ("copy_last", "shuffled_actions", "zero_actions", "real_frames")  # no world models; also behind "model:"
PAGES = {"README.md": ("demo",), "docs/results.md": None}  # which studies a page shows; None: all


def tables(studies: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown of several results files: success by arm, paired differences, world-model fidelity."""
    if not studies:
        return "No results have been committed yet."
    return "\n\n".join(_study(study) for study in studies)


def rewrite(text: str, studies: Sequence[Mapping[str, Any]], page: str = "README.md") -> str:
    """Return the ``text`` of a page with the part between the markers made anew."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise UserError(f"{page} lacks the markers {BEGIN} and {END}; put them where the tables belong")
    return f"{head}{BEGIN}\n{tables(studies)}\n{END}{tail}"


def committed(folder: Path, page: str) -> list[dict[str, Any]]:
    """Return the results files under ``folder`` that ``page`` shows, by name."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [study for study in found if PAGES[page] is None or study["study"] in PAGES[page]]


def _study(study: Mapping[str, Any]) -> str:
    parts = [f"`{study['command']}` (commit {study['commit']}, {study['date']}, {study['machine']['cpus']} CPU cores):"]
    success = [row for row in study["rows"] if row["metric"] == "success"]
    if success:
        order = arm_order([row["arm"] for row in success])
        ranked = sorted(success, key=lambda row: (row["task"], order.index(row["arm"])))
        lines = ["| task | arm | success | 95 % interval | n |", "| --- | --- | --- | --- | --- |"]
        lines += [f"| {r['task']} | {r['arm']} | {r['value']:.3f} | {r['low']:.3f} to {r['high']:.3f} | {r['n']} |" for r in ranked]
        parts.append("\n".join(lines))
    parts += [part for metric in COMPARED if (part := _compared(study["pairs"], metric))]
    compared = (_post_trained(study["pairs"], metrics) for metrics in (MODEL_METRICS, FOREGROUND))
    parts += [part for part in (_models(study["rows"]), *compared, _measured(study["rows"])) if part]
    return "\n\n".join(parts)


def _compared(pairs: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Return the paired differences of policies in ``metric``; empty without any."""
    what, digits = COMPARED[metric]
    lines = [f"| task | difference in {what} | | 95 % interval | won / lost |", "| --- | --- | --- | --- | --- |"]
    for p in pairs:
        if p["metric"] == metric:
            won, lost = won_and_lost(p)
            ends = f"{p['low']:+.{digits}f} to {p['high']:+.{digits}f} | {won:.1%} / {lost:.1%}"
            lines.append(f"| {p['task']} | {p['a']} - {p['b']} | {p['diff']:+.{digits}f} | {ends} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def _models(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return fidelity over a whole free-running rollout, each metric averaged over the cameras, the controls beside the model."""
    found: dict[str, dict[tuple[str, str], list[float]]] = {}
    for row in rows:
        metric, _, camera = row["metric"].partition("/")
        if metric in MODEL_METRICS and camera.endswith("@mean") and row["arm"] in MODEL_ARMS:
            found.setdefault(row["task"], {}).setdefault((metric, row["arm"]), []).append(row["value"])
    if not found:
        return ""
    measured = {key for values in found.values() for key in values}
    metrics = [metric for metric in MODEL_METRICS if any(metric == key[0] for key in measured)]
    arms = [arm for arm in MODEL_ARMS if any(arm == key[1] for key in measured)]
    heads = " | ".join(MODEL_METRICS[metric] for metric in metrics)
    lines = [
        f"| free-running from one start, mean over frames and cameras: {' / '.join(arms)} | {heads} |",
        "| --- " * (1 + len(metrics)) + "|",
    ]
    for task, values in found.items():
        cells = []
        for metric in metrics:
            means = [values.get((metric, arm), ()) for arm in arms]
            cells.append(" / ".join(f"{sum(mean) / len(mean):.{DIGITS[metric]}f}" if mean else "not run" for mean in means))
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _measured(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what benches measured: speeds, and what the real-robot scripts do."""
    shown = [row for row in rows if row["metric"].partition("@")[0] in MEASURED]
    lines = [f"| {r['arm']} | {r['metric']} | {r['value']:g} | {r['low']:g} to {r['high']:g} | {r['n']} |" for r in shown]
    return "\n".join(["| arm | measured | value | 95 % interval | n |", "| --- | --- | --- | --- | --- |", *lines]) if lines else ""


def _post_trained(pairs: Sequence[Mapping[str, Any]], names: Collection[str]) -> str:
    """Return the differences between world models in the metrics ``names`` on the same episodes, and the share of them in which the first
    is the better one."""
    shown = [p for p in pairs if p["b"].rpartition(":")[2] not in CONTROLS and p["metric"].endswith("@mean")]
    metrics = list(dict.fromkeys(p["metric"] for p in shown if p["metric"].partition("/")[0] in names))
    if not metrics:
        return ""
    lines = [f"| task | world model, same episodes | {' | '.join(m.removesuffix('@mean') for m in metrics)} |"]
    lines.append("| --- " * (2 + len(metrics)) + "|")
    for task, a, b in dict.fromkeys((p["task"], p["a"], p["b"]) for p in shown if p["metric"] in metrics):
        found = {p["metric"]: p for p in shown if (p["task"], p["a"], p["b"]) == (task, a, b)}
        cells = [f"{p['diff']:+.3f} ({p['low']:+.3f} to {p['high']:+.3f}), won {won_and_lost(p)[0]:.0%}" for p in map(found.get, metrics)]
        lines.append(f"| {task} | {a} - {b} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Rewrite the pages below the current folder from results/; ``words`` (default: the command line's) can only ask for help."""
    form = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser("python -m robowm.report.readme", description=__doc__, formatter_class=form).parse_args(words)
    for page in PAGES:
        write_text(Path(page), rewrite(Path(page).read_text(), committed(Path("results"), page), page))


if __name__ == "__main__":
    main()
