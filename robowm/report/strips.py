"""Film strips: frames side by side, truth above prediction, over a ruler that marks where each predicted chunk begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from robowm.report.study import Strip
from robowm.report.style import BLUE, GREY, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

GAP = 0.08  # between pictures, in pictures
BETWEEN = 0.14  # between cameras, in pictures
RULER = 0.55  # room for the ruler and its numbers, in pictures
LABELS, EDGE = 1.45, 0.06  # inches left of the pictures, and around them


def frames_shown(length: int, shown: int) -> np.ndarray:
    """Return at most ``shown`` rows of 0..``length``, a whole number of rows apart, so that a time ruler fits under them."""
    step = max(1, -(-length // max(shown - 1, 1)))
    return np.arange(0, length + 1, step)


def chunk_starts(length: int, chunk: int) -> np.ndarray:
    """Return the first row of every predicted chunk up to ``length``: 1, 1 + chunk, ... (row 0 is the real start)."""
    return np.arange(1, length + 1, chunk) if chunk > 0 else np.zeros(0, int)


def strip_rows(strip: Strip) -> list[tuple[str, np.ndarray]]:
    """Return (label, uint8 [L+1, h, w, 3]) from top to bottom, truth above prediction for each camera."""
    rows = []
    for camera, truth in strip.truth.items():
        rows += [(f"{camera}, truth", truth), (f"{camera}, predicted", strip.predicted[camera])]
    return rows


def draw_strip(figure: Figure | SubFigure, strip: Strip, shown: int, size: tuple[float, float], title: str = "") -> None:
    """Draw ``strip`` over the whole of a figure of ``size`` (width, height in inches, see `strip_height`).

    x counts shown pictures, so the ruler under them is linear in time.
    """
    rows = strip_rows(strip)
    length = min(len(frames) for _, frames in rows) - 1
    at = frames_shown(length, shown)
    width, height = size
    unit = (width - LABELS - EDGE) / len(at)  # inches per picture
    tall = _span(rows) * unit * _aspect(rows)
    axes = figure.add_axes((LABELS / width, EDGE / height, unit * len(at) / width, tall / height))
    for y, (_, frames) in zip(_heights(rows), rows, strict=True):
        for x, frame in enumerate(at):
            box = (x - 0.5 + GAP / 2, x + 0.5 - GAP / 2, y + 0.5 - GAP / 2, y - 0.5 + GAP / 2)
            axes.imshow(frames[frame], extent=box, interpolation="none", aspect="auto")
    bottom = _heights(rows)[-1] + 0.5
    _draw_ruler(axes, bottom + 0.12, at, chunk_starts(length, strip.chunk), strip.chunk)
    axes.set_yticks(_heights(rows), [label for label, _ in rows])
    axes.set_xlim(-0.5, len(at) - 0.5)
    axes.set_ylim(-0.5 + _span(rows), -0.5)
    axes.set_xticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    if title:
        axes.set_title(title)


def strip_height(strip: Strip, shown: int, width: float) -> float:
    """Return the inches that ``strip`` takes at ``width`` inches, without a title."""
    rows = strip_rows(strip)
    columns = len(frames_shown(min(len(frames) for _, frames in rows) - 1, shown))
    return _span(rows) * (width - LABELS - EDGE) / columns * _aspect(rows) + 2 * EDGE


def _heights(rows: Sequence[tuple[str, np.ndarray]]) -> list[float]:
    return [y + BETWEEN * (y // 2) for y in range(len(rows))]


def _span(rows: Sequence[tuple[str, np.ndarray]]) -> float:
    return _heights(rows)[-1] + 1 + RULER


def _draw_ruler(axes: Axes, y: float, at: np.ndarray, starts: np.ndarray, chunk: int) -> None:
    step, end = (int(at[1] - at[0]) if len(at) > 1 else 1), len(at) - 0.5
    for i, start in enumerate(starts):
        left, right = (start - 0.5) / step, (start + chunk - 0.5) / step
        axes.plot([left, min(right, end)], [y, y], color=GREY if i % 2 else BLUE, linewidth=3, solid_capstyle="butt")
    for x, frame in enumerate(at):
        axes.annotate(f"{frame}" if frame else "start", (x, y + 0.1), ha="center", va="top", fontsize=8, color=INK)


def _aspect(rows: Sequence[tuple[str, np.ndarray]]) -> float:
    return max(frames.shape[1] / frames.shape[2] for _, frames in rows)
