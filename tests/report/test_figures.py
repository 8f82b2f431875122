import io
import re

import numpy as np
import pytest
from PIL import Image

from robowm.report import figures
from robowm.report.strips import chunk_starts, frames_shown
from robowm.report.study import Curve, arm_order, curves_from_rows
from robowm.report.style import to_svg
from tests.report.synthetic import pair, results, strip, study

TASK = "tabletop/pick_place"


def test_the_readme_picture_is_small_and_wide_enough_to_read():
    rng = np.random.default_rng(0)
    noisy = strip(size=64)
    for frames in (*noisy.truth.values(), *noisy.predicted.values()):
        frames[:] = rng.integers(0, 255, frames.shape)  # the worst case for PNG
    png = figures.readme_figure(results(), [noisy])
    assert len(png) <= 300_000
    assert Image.open(io.BytesIO(png)).width >= 600


def test_the_readme_picture_shows_every_task():
    sizes = [Image.open(io.BytesIO(figures.readme_figure(results(names), []))).size for names in ((TASK,), (TASK, "tabletop/push"))]
    aspects = [height / width for width, height in sizes]
    assert aspects[1] == pytest.approx(2 * aspects[0], rel=0.01)


def test_a_study_without_strips_or_pairs_still_gives_a_picture():
    assert figures.readme_figure({**results(), "pairs": []}, [])[:4] == b"\x89PNG"


def test_a_study_of_world_models_alone_shows_their_differences_and_nothing_gives_no_picture():
    models = {"task": "discs/push:open_loop", "a": "rl", "b": "base", "metric": "psnr/top@mean"}
    pairs = [models | {"diff": 0.5, "low": 0.25, "high": 0.75, "n": 768, "wins": 0.9, "losses": 0.1}] * 2
    assert figures.readme_figure({**results(), "rows": [], "pairs": pairs}, [])[:4] == b"\x89PNG"
    assert figures.readme_figure({**results(), "rows": [], "pairs": []}, []) is None


def test_many_arms_leave_room_for_their_curves_and_look_different():
    names = [f"arm{i}" for i in range(12)]
    curves = [Curve("t", name, "psnr", "top", np.arange(1, 4), np.ones(3)) for name in [*names, "arm0@t0.4"]]
    few, many = figures.curve_figure(curves[:3], "psnr", "top"), figures.curve_figure(curves, "psnr", "top")
    assert [line.get_label() for line in many.axes[0].get_lines()] == names  # another temperature is not drawn
    few.draw_without_rendering(), many.draw_without_rendering()
    heights = [figure.axes[0].get_position().height * figure.get_figheight() for figure in (few, many)]
    assert heights[1] > 0.8 * heights[0]


def test_a_bench_of_several_temperatures_shows_its_models_at_the_samplers_own_or_at_all_where_that_was_not_asked_for():
    def shown(*arms):
        curves = [Curve("t", arm, "psnr", "top", np.arange(1, 4), np.ones(3)) for arm in (*arms, "copy_last")]
        return [line.get_label() for line in figures.curve_figure(curves, "psnr", "top").axes[0].get_lines()]

    assert shown("base@t1", "rl@t1", "base@t0.4", "rl@t0.4") == ["base@t1", "rl@t1", "copy_last"]
    assert shown("base@t0.4", "base@t0.7") == ["base@t0.4", "base@t0.7", "copy_last"]
    assert figures.is_native("rl@t1:zero_actions") and not figures.is_native("rl@t0.4:zero_actions")
    assert figures.is_native("teacher_forcing@seconds") and not figures.is_native("teacher_forcing@seconds@t0.4")
    pair = {"task": "t", "metric": "psnr/top@mean", "diff": 1.0, "low": 0.5, "high": 1.5, "n": 20, "wins": 1.0, "losses": 0.0}
    pairs = [{**pair, "a": f"rl@t{t}", "b": f"base@t{t}"} for t in ("1", "0.4")]
    assert [p["a"] for p in figures._compared({**results(), "pairs": pairs})["t"]] == ["rl@t1"]


def test_thirteen_arms_have_a_colour_each_and_twenty_a_look_each():
    names = ["copy_last", *(f"arm{i}" for i in range(12)), "shuffled_actions"]
    styles = figures.curve_styles(names)
    assert len({colour for arm, (colour, _) in styles.items() if arm.startswith("arm")}) == 12
    assert styles["copy_last"][0] == styles["shuffled_actions"][0] not in {styles[f"arm{i}"][0] for i in range(12)}
    assert len(set(figures.curve_styles([*names, *(f"more{i}" for i in range(6))]).values())) == 20
    curves = [Curve("t", name, "psnr", "top", np.arange(1, 4), np.ones(3)) for name in names]
    (axes,) = figures.curve_figure(curves, "psnr", "top").axes
    assert {line.get_label(): line.get_color() for line in axes.get_lines()} == {arm: colour for arm, (colour, _) in styles.items()}
    axes.figure.draw_without_rendering()
    assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0, "the legend covers no curve"


@pytest.mark.parametrize(("length", "shown"), [(60, 13), (59, 13), (7, 13), (1, 13), (200, 9)])
def test_shown_frames_are_evenly_spaced_so_that_the_ruler_is_true(length, shown):
    at = frames_shown(length, shown)
    assert at[0] == 0 and at[-1] <= length and len(at) <= shown
    assert len(set(np.diff(at))) <= 1


def test_chunks_begin_after_the_real_frame():
    assert chunk_starts(12, 4).tolist() == [1, 5, 9]
    assert chunk_starts(13, 4).tolist() == [1, 5, 9, 13]
    assert chunk_starts(12, 0).tolist() == []


def test_arms_read_from_reference_to_reference():
    assert arm_order(["expert", "+real+imagined", "base", "+real", "never_moves", "base_longer"]) == [
        "never_moves",
        "base",
        "base_longer",
        "+real",
        "+real+imagined",
        "expert",
    ]


def test_curves_come_out_of_rows_in_the_order_of_frames():
    curve = next(c for c in curves_from_rows(results()) if (c.task, c.arm, c.metric, c.camera) == (TASK, "copy_last", "psnr", "wrist"))
    assert curve.frame.tolist() == [1, 10, 20, 40, 60]
    np.testing.assert_allclose(curve.value, 31 - 0.12 * curve.frame)


@pytest.mark.parametrize(
    "draw",
    [
        lambda s: figures.arms_figure(s.results, TASK),
        lambda s: figures.pairs_figure(s.results, TASK),
        lambda s: figures.curve_figure(curves_from_rows(s.results)[:3], "psnr", "external"),
        lambda s: figures.reliability_figure(s.reliability[0]),
        lambda s: figures.timeline_figure(s.stages),
        lambda s: figures.strip_figure(s.strips[0]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_each_figure_is_an_svg_that_names_itself(draw):
    svg = to_svg(draw(study()), "what is shown")
    assert svg.startswith('<svg role="img" aria-label="what is shown"') and svg.rstrip().endswith("</svg>")


def test_the_marks_under_paired_differences_say_where_they_stand():
    from matplotlib.figure import Figure

    axes = Figure(figsize=(7, 3)).subplots()
    figures.draw_pairs(axes, [pair("t", "+real", "base", 0.0, half=0.096)], "success")
    shown = [float(label.get_text().replace("\N{MINUS SIGN}", "-")) for label in axes.get_xticklabels()]
    np.testing.assert_allclose(shown, 100 * axes.get_xticks(), atol=1e-9)


def test_a_dot_is_filled_where_the_difference_is_sure():
    from matplotlib.figure import Figure

    sure = pair("t", "+real", "base", 0.2, half=0.05)
    axes = Figure(figsize=(7, 3)).subplots()
    figures.draw_pairs(axes, [sure, {**sure, "n": 9}, {**sure, "p": 0.2}], "success")
    dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert [dot.get_markerfacecolor() == dot.get_color() for dot in dots] == [True, False, False]


def test_no_label_is_cut_off_where_a_tall_legend_changes_the_ticks():
    names = ("base", "copy_last", "shuffled_actions", "zero_actions", "self_rollout", "rl")
    curves = [Curve("t", name, "psnr", "external", np.array([4, 60]), np.array([28.0 - i, 15.5 + i])) for i, name in enumerate(names)]
    drawn = to_svg(figures.curve_figure(curves, "psnr", "external"), "psnr")
    ends = re.findall(r'text-anchor: end[^>]* x="([-.0-9]+)"[^>]*>([.0-9]+)<', drawn)
    assert ends and all(float(x) >= 8.5 * (0.636 * len(text) - 0.318) for x, text in ends)  # DejaVu Sans: widths of digits, less a point's
