"""The house style of every figure: quiet axes, colours that colour-blind readers tell apart, ink that follows the page's theme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, RULE, PAPER = "#1c2126", "#d4d8dd", "#fefefe"
BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9"  # Okabe and Ito (2008)
WINE, OLIVE, ROSE, TEAL, VIOLET = "#aa3377", "#999933", "#ee6677", "#44aa99", "#8073ac"  # where those run out: Tol; Brewer
GREY = "#7d858e"
_PAGE_COLOURS = {INK: "currentColor", RULE: "var(--rule)", PAPER: "var(--paper)", BLUE: "var(--accent)"}  # in SVG, see `to_svg`

_RC = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "robowm",
    "figure.dpi": 100,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw with the house style, without a display."""
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(_RC):
        yield


def new_figure(width: float, height: float, layout: str | None = "constrained") -> Figure:
    """Return an empty figure of ``width`` x ``height`` inches; ``constrained`` places parts so that nothing overlaps."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def quiet(axes: Axes, grid: str) -> None:
    """Leave grid lines along one axis (``x`` or ``y``) and no spines."""
    axes.grid(axis=grid)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def to_svg(figure: Figure, label: str) -> str:
    """Return the figure as an inline SVG that takes its colours from the page; ``label`` is read aloud instead of it."""
    buffer = io.StringIO()
    with house_style():
        _settle(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)
    text = re.sub(r' id="(?:figure|axes|patch|line2d|text|xtick|ytick|matplotlib\.axis|PathCollection|LineCollection)_\d+"', "", text)
    for ours, theirs in _PAGE_COLOURS.items():
        text = text.replace(ours, theirs)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def to_png(figure: Figure, dpi: int) -> bytes:
    """Return the figure as a PNG on white."""
    buffer = io.BytesIO()
    with house_style():
        _settle(figure)
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white")
    return buffer.getvalue()


def _settle(figure: Figure) -> None:
    """Let the layout see the ticks that its first pass leads to: labels that grow by it would be cut off at the edge."""
    figure.draw_without_rendering()


def escape(text: str) -> str:
    """Return ``text`` safe inside HTML text and double-quoted attributes."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
