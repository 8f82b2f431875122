"""Figures from results and curves: small panels that a page arranges, and one composed picture for the README.

Every function returns a matplotlib figure drawn in the house style (robowm/report/style.py); style.to_svg and style.to_png write it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robowm.report.schema import SHARES, lower_is_better
from robowm.report.strips import draw_strip, strip_height
from robowm.report.study import (
    REFERENCES,
    Curve,
    Reliability,
    Stage,
    Strip,
    action_set_label,
    arm_order,
    is_new,
    pairs_of,
    rows_of,
    task_and_actions,
    tasks,
)
from robowm.report.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    OLIVE,
    ORANGE,
    PAPER,
    PURPLE,
    ROSE,
    RULE,
    SKY,
    TEAL,
    VERMILION,
    VIOLET,
    WINE,
    house_style,
    new_figure,
    quiet,
    to_png,
)
from robowm.report.words import is_sure, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

PANEL = 4.2  # inches; a panel fills a phone's width and stands two or three abreast on a screen
ROW = 0.34  # inches per arm
WIDE = 9.0  # inches, a film strip
SHOWN = 13  # pictures in a film strip
README_BYTES = 300_000

_CONTROL_DASHES = {"copy_last": "--", "shuffled_actions": ":", "zero_actions": "-."}  # in grey: what models are measured against
_DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (1, 4)))  # of as many colours each, unlike each other to any reader
_COLOURS = ((BLUE, VERMILION, GREEN, INK), (PURPLE, ORANGE, SKY, WINE), (OLIVE, ROSE, TEAL, VIOLET))  # which come round again after these
_CROWD = 6  # curves; of more, bands are fainter and the panel is taller
_METRIC_LABELS = {"psnr": "PSNR (dB), higher is better", "ssim": "SSIM, higher is better", "lpips": "LPIPS, lower is better"}


def arms_figure(results: Mapping[str, Any], task: str, metric: str = "success") -> Figure:
    """Draw each arm's value with its 95 % interval."""
    rows = {row["arm"]: row for row in rows_of(results, task=task, metric=metric)}
    with house_style():
        figure = new_figure(PANEL, 0.75 + ROW * len(rows))
        draw_arms(figure.subplots(), rows, metric)
    return figure


def draw_arms(axes: Axes, rows: Mapping[str, Mapping[str, Any]], metric: str) -> None:
    """Draw ``rows`` ({arm: row}) from top to bottom, the number beside each dot."""
    arms = arm_order(rows)
    for y, arm in enumerate(arms):
        row, colour = rows[arm], BLUE if is_new(arm) else GREY
        axes.plot([row["low"], row["high"]], [y, y], color=colour, linewidth=2.4, solid_capstyle="butt")
        hollow = {"markerfacecolor": PAPER} if arm in REFERENCES else {}
        axes.plot(row["value"], y, "o", color=colour, markersize=6.5, **hollow)
        text = percent(row["value"]) if metric in SHARES else f"{row['value']:.3g}"
        axes.annotate(text, (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=8.5)
    axes.set_yticks(range(len(arms)), arms)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    quiet(axes, "x")
    if metric in SHARES:
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25", "50", "75", "100 %"])


def pairs_figure(results: Mapping[str, Any], task: str, metric: str = "success") -> Figure:
    """Draw each paired difference with its 95 % interval against zero; a filled dot is a sure one."""
    pairs = pairs_of(results, task=task, metric=metric)
    with house_style():
        figure = new_figure(PANEL, 0.75 + 1.5 * ROW * len(pairs))
        draw_pairs(figure.subplots(), pairs, metric)
    return figure


def draw_pairs(axes: Axes, pairs: Sequence[Mapping[str, Any]], metric: str, slots: float | None = None) -> None:
    """Draw ``pairs`` from top to bottom, with room for ``slots`` of them."""
    axes.axvline(0, color=INK, linewidth=0.9)
    decibels = metric.startswith("psnr/")
    for y, pair in enumerate(pairs):
        sure = is_sure(pair)
        colour = GREY if not sure else BLUE if (pair["diff"] > 0) != lower_is_better(metric) else VERMILION
        axes.plot([pair["low"], pair["high"]], [y, y], color=colour, linewidth=2.4, solid_capstyle="butt")
        axes.plot(pair["diff"], y, "o", color=colour, markersize=6.5, markerfacecolor=colour if sure else PAPER)
        text = minus(f"{100 * pair['diff']:+.1f}" if metric in SHARES else f"{pair['diff']:+.2f}" if decibels else f"{pair['diff']:+.3g}")
        axes.annotate(text, (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=8.5)
    axes.set_yticks(range(len(pairs)), [f"{pair['a']}\nminus {pair['b']}" for pair in pairs])
    axes.set_ylim(max(len(pairs), slots or 0) - 0.5, -0.5)
    quiet(axes, "x")
    reach = max([abs(pair[name]) for pair in pairs for name in ("low", "high")] + [0.05]) * 1.1
    axes.set_xlim(-reach, reach)
    if metric in SHARES:
        axes.set_xlabel("points of success")
        ticks = [tick for tick in axes.get_xticks() if abs(tick) <= reach]
        axes.set_xticks(ticks, [minus(f"{100 * tick:+.3g}") if tick else "0" for tick in ticks])


def is_native(arm: str) -> bool:
    """Tell whether ``arm`` was sampled at the sampler's own temperature, which a bench of several temperatures calls @t1."""
    return re.search(r"@t(?!1$)[0-9.]+$", arm.partition(":")[0]) is None


def curve_figure(curves: Sequence[Curve], metric: str, camera: str, fps: float | None = None) -> Figure:
    """Draw one metric of one camera over the horizon, one line per arm; other sampling temperatures stand in the tables alone."""
    native = [curve for curve in curves if is_native(curve.arm)]
    curves = native if any(curve.arm not in _CONTROL_DASHES for curve in native) else curves
    with house_style():
        height = 3.1 if len(curves) > _CROWD else 2.1
        figure = new_figure(PANEL, height + 0.2 * np.ceil(len(curves) / _columns(curves)))
        draw_curves(figure.subplots(), curves, fps)
        figure.axes[0].set_title(f"{camera}: {_METRIC_LABELS.get(metric, metric)}", fontsize=9)
    return figure


def draw_curves(axes: Axes, curves: Sequence[Curve], fps: float | None = None) -> None:
    """Draw ``curves`` of one metric and camera, with the legend below the axes."""
    styles = curve_styles([curve.arm for curve in curves])
    for curve in curves:
        colour, dashes = styles[curve.arm]
        if curve.low is not None and curve.high is not None:
            axes.fill_between(curve.frame, curve.low, curve.high, color=colour, alpha=0.07 if len(curves) > _CROWD else 0.16, linewidth=0)
        axes.plot(curve.frame, curve.value, linestyle=dashes, color=colour, label=curve.arm)
    quiet(axes, "y")
    axes.margins(x=0.02)
    axes.set_xlabel("predicted frame" if not fps else f"predicted frame ({fps:g} a second)")
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2 if len(curves) <= _CROWD else -0.14),
        ncols=_columns(curves),
        handlelength=2.2,
        columnspacing=1.2,
    )


def curve_styles(arms: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return {arm: (colour, dashes)}: grey for controls; twelve models have a colour of their own, those of like colours other dashes."""
    models = [arm for arm in dict.fromkeys(arms) if arm not in _CONTROL_DASHES]
    styles = {arm: (GREY, dashes) for arm, dashes in _CONTROL_DASHES.items() if arm in arms}
    for i, arm in enumerate(models):
        group, place = divmod(i, len(_COLOURS[0]))
        styles[arm] = (_COLOURS[group % len(_COLOURS)][place], _DASHES[group % len(_DASHES)])
    return styles


def _columns(curves: Sequence[Curve]) -> int:
    """Return the legend's columns: long names stand two abreast."""
    return 3 if len(curves) <= len(_CONTROL_DASHES) else 2


def reliability_figure(reliability: Reliability) -> Figure:
    """Draw observed against predicted success per bin; the area of a dot grows with its count."""
    with house_style():
        figure = new_figure(PANEL, 3.0)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=RULE, linewidth=1)
        keep = reliability.count > 0
        size = 20 + 160 * reliability.count[keep] / reliability.count.max()
        axes.plot(reliability.predicted[keep], reliability.observed[keep], color=BLUE, linewidth=1.2)
        axes.scatter(reliability.predicted[keep], reliability.observed[keep], s=size, color=BLUE, zorder=3, clip_on=False)
        if reliability.threshold is not None:
            axes.axvline(reliability.threshold, color=VERMILION, linewidth=1.2, linestyle="--")
            axes.annotate("threshold", (reliability.threshold, 1.01), ha="right", va="bottom", fontsize=8.5, annotation_clip=False)
        quiet(axes, "both")
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="predicted probability", ylabel="share that held")
    return figure


def timeline_figure(stages: Sequence[Stage]) -> Figure:
    """Draw when each stage ran, or where starts are not known, how long it took."""
    placed = all(stage.start is not None for stage in stages)
    ordered = sorted(stages, key=lambda s: s.start) if placed else sorted(stages, key=lambda s: -s.seconds)
    end = max(((stage.start or 0.0) + stage.seconds for stage in ordered), default=1.0)
    unit, scale = ("h", 3600.0) if end > 3 * 3600 else ("min", 60.0) if end > 180 else ("s", 1.0)
    with house_style():
        figure = new_figure(2 * PANEL, 0.7 + 0.26 * len(ordered))
        axes = figure.subplots()
        for y, stage in enumerate(ordered):
            start, length = (stage.start or 0.0) / scale, stage.seconds / scale
            axes.barh(y, length, left=start, height=0.62, color=BLUE, alpha=0.85)
            late = placed and start > 0.7 * end / scale
            axes.annotate(
                f"{length:.1f} {unit}",
                (start if late else start + length, y),
                xytext=(-4 if late else 4, 0),
                textcoords="offset points",
                ha="right" if late else "left",
                va="center",
                fontsize=8,
            )
        several = len({stage.unit for stage in ordered}) > 1
        names = [f"{stage.name} ({stage.unit})" if several and stage.unit else stage.name for stage in ordered]
        axes.set_yticks(range(len(ordered)), names)
        axes.set_ylim(len(ordered) - 0.5, -0.5)
        axes.set_xlim(0, end / scale * 1.08)
        quiet(axes, "x")
        axes.set_xlabel(f"{'since the start' if placed else 'length'} ({unit})")
    return figure


def strip_figure(strip: Strip, shown: int = SHOWN) -> Figure:
    """Draw one film strip: per camera the truth above the prediction, with a ruler that marks where each chunk begins."""
    size = (WIDE, strip_height(strip, shown, WIDE))
    with house_style():
        figure = new_figure(*size, layout=None)
        draw_strip(figure, strip, shown, size)
    return figure


def readme_figure(results: Mapping[str, Any], strips: Sequence[Strip]) -> bytes | None:
    """Return one PNG of at most 300 kB, or None where there is nothing to draw.

    The first film strip (if any) stands above the arms and paired differences of every task, or, in a study of world models, above the
    paired differences of their PSNR.
    """
    names, compared = tasks(results), _compared(results)
    counts = [(len(rows_of(results, task=task, metric="success")), len(pairs_of(results, task=task, metric="success"))) for task in names]
    heights = [strip_height(strip, SHOWN, WIDE) + 0.3 for strip in strips[:1]]
    heights += [0.95 + ROW * max(arms, 1.5 * pairs) for arms, pairs in counts]
    if not names and compared:
        heights.append(0.95 + 1.5 * ROW * max(map(len, compared.values())))
    if not heights:
        return None
    with house_style():
        figure = new_figure(WIDE, sum(heights))
        parts = list(np.atleast_1d(figure.subfigures(len(heights), 1, height_ratios=heights, hspace=0)))
        for strip in strips[:1]:
            title = f"The world model from one real frame ({action_set_label(strip.task)}): truth above prediction"
            draw_strip(parts.pop(0), strip, SHOWN, (WIDE, heights[0]), title)
        for part, task in zip(parts, names, strict=False):
            _draw_task(part, results, task, f"{task.rpartition('/')[2]}: success" if len(names) > 1 else "Success in the simulator")
        if not names and compared:
            _draw_fidelity(parts[0], compared)
    return _at_most(figure, README_BYTES)


def _compared(results: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return {task: paired differences of PSNR over whole rollouts}, of the first camera and at the sampler's own temperature."""
    metrics = [p["metric"] for p in results["pairs"] if p["metric"].startswith("psnr/") and p["metric"].endswith("@mean")]
    found: dict[str, list[Mapping[str, Any]]] = {}
    shown = pairs_of(results, metric=metrics[0]) if metrics else []
    for pair in [pair for pair in shown if is_native(pair["a"])]:
        found.setdefault(pair["task"], []).append(pair)
    return found


def _draw_fidelity(part: SubFigure, compared: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    panels = np.atleast_1d(part.subplots(1, len(compared)))
    for axes, (task, pairs) in zip(panels, compared.items(), strict=True):
        draw_pairs(axes, pairs, pairs[0]["metric"])
        axes.set_title(f"{task_and_actions(task)[1].replace('_', '-')} actions", fontsize=9)
        axes.set_xlabel(f"PSNR (dB), {max(pair['n'] for pair in pairs):,} starts")
        if axes is not panels[0]:
            axes.tick_params(axis="y", labelleft=False)


def _draw_task(part: SubFigure, results: Mapping[str, Any], task: str, title: str) -> None:
    rows = {row["arm"]: row for row in rows_of(results, task=task, metric="success")}
    pairs = pairs_of(results, task=task, metric="success")
    left, right = part.subplots(1, 2) if pairs else (part.subplots(), None)
    draw_arms(left, rows, "success")
    left.set_title(f"{title}, {max(row['n'] for row in rows.values()):,} episodes")
    if right is not None:
        draw_pairs(right, pairs, "success", slots=len(rows) / 1.5)
        right.set_title("Paired differences")


def minus(text: str) -> str:
    """Return ``text`` with true minus signs."""
    return text.replace("-", "\N{MINUS SIGN}")


def _at_most(figure: Figure, size: int) -> bytes:
    for dpi in (160, 130, 110, 90, 70):
        if len(png := to_png(figure, dpi)) <= size:
            return png
    raise ValueError(f"the picture takes {len(png)} bytes at 70 dots an inch, more than {size}; show fewer strips")
