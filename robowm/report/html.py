"""The page's frame: style, sections, tables, and a budget for what is inlined."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from robowm.report.style import escape

CSS = """
:root { color-scheme: light dark; --ink: #1c2126; --soft: #59636d; --paper: #ffffff; --rule: #d4d8dd; --tint: #f4f6f8; --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #a0a9b2; --paper: #14171a; --rule: #3a4148; --tint: #1d2226; --accent: #5cb3e6; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .2rem; }
h2 { font-size: 1.2rem; margin: 3rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.6rem 0 .5rem; }
p, ul, ol { margin: .5rem 0; max-width: 46rem; }
small, .soft, figcaption, caption { color: var(--soft); font-size: .875rem; }
a { color: var(--accent); }
code, pre { font: .85em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
pre { background: var(--tint); padding: .8rem; overflow-x: auto; overflow-wrap: normal; border-radius: 4px; max-height: 32rem; }
header .soft { max-width: none; }
.lead { background: var(--tint); border-left: 4px solid var(--accent); padding: .8rem 1rem; margin: 1.2rem 0; max-width: none; }
.lead p { margin: .3rem 0; max-width: 60rem; }
.lead p:first-child { font-size: 1.12rem; font-weight: 600; line-height: 1.4; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .925rem; }
caption { text-align: left; padding-bottom: .3rem; }
th, td { text-align: left; padding: .3rem 1.1rem .3rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; white-space: nowrap; }
th { font-weight: 600; }
td.n, th.n { text-align: right; white-space: normal; }
td.n span { white-space: nowrap; }
.wide th:first-child { position: sticky; left: 0; background: var(--paper); }
tbody th { font-weight: 400; white-space: normal; min-width: 11rem; }
td.long { white-space: normal; min-width: 14rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1.4rem 1.6rem; align-items: start; }
.grid.two { grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.films { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 16.5rem), 1fr)); gap: 1rem 1.2rem; align-items: start; }
figure { margin: 0; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; }
figure video { display: block; width: 100%; height: auto; background: #000; border-radius: 4px; }
.above figure { display: flex; flex-direction: column-reverse; }
figcaption { margin-top: .3rem; overflow-wrap: anywhere; }
.strip { overflow-x: auto; margin: 1rem 0; }
.strip svg { min-width: 48rem; max-width: none; }
svg image { image-rendering: pixelated; }
details { margin: .8rem 0; }
summary { cursor: pointer; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .6rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .8rem 0 0; font-size: .925rem; }
@media (max-width: 40rem) { body { padding: 1rem .9rem 3rem; } dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
@media print { body { max-width: none; } video, .films { display: none; }
  .wide, .strip { overflow: visible; } .strip svg { min-width: 0; width: 100%; } }
"""


class Budget:
    """Counts what is inlined and refuses what would make the page larger than ``size`` bytes."""

    def __init__(self, size: int):
        self._left = size
        self.left_out: list[str] = []

    def take(self, size: int, name: str) -> bool:
        """Return True and count ``size`` bytes if they fit, else remember ``name`` as left out."""
        if size > self._left:
            self.left_out.append(name)
            return False
        self._left -= size
        return True


def page(title: str, sections: Sequence[tuple[str, str]], head: str) -> str:
    """Return the document; ``sections`` are (heading, HTML), empty ones are dropped."""
    kept = [(heading, body) for heading, body in sections if body]
    links = "".join(f'<a href="#{anchor(heading)}">{escape(heading)}</a>' for heading, _ in kept)
    body = "".join(f'<section id="{anchor(heading)}"><h2>{escape(heading)}</h2>\n{html}</section>\n' for heading, html in kept)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n"
        f"<body><header>{head}<nav>{links}</nav></header>\n<main>\n{body}</main></body></html>\n"
    )


def anchor(heading: str) -> str:
    """Return ``heading`` as an id."""
    return "-".join("".join(c if c.isalnum() else " " for c in heading.lower()).split())


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", words: Sequence[int] = (0,)) -> str:
    """Return a table whose first column names the row; all but the columns ``words`` are numbers. Cells are escaped.

    Numbers and intervals never break inside. Where it would be too wide, an interval goes below its number, and the first column stays
    while the others scroll.
    """

    def classes(i: int) -> str:
        return ' class="n"' if i not in words else ""

    heading = "".join(f'<th scope="col"{classes(i)}>{escape(cell)}</th>' for i, cell in enumerate(head))
    body = ""
    for row in rows:
        first, *rest = row
        cells = "".join(f"<td{classes(i)}>{escape(cell) if i in words else _number(cell)}</td>" for i, cell in enumerate(rest, start=1))
        body += f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>\n'
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="wide" tabindex="0"><table>{title}<thead><tr>{heading}</tr></thead><tbody>\n{body}</tbody></table></div>\n'


def _number(cell: str) -> str:
    """Return a number and its interval as parts that never break inside: browsers break ``1.2e-07`` after its hyphen, too."""
    return " ".join(f"<span>{part}</span>" for part in escape(cell).replace(" [", "\n[").split("\n") if part)


def figure(content: str, caption: str = "") -> str:
    """Return a figure around SVG or video."""
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{content}{words}</figure>\n"


def video(mp4: bytes, label: str) -> str:
    """Return a player with the film inside."""
    data = base64.b64encode(mp4).decode()
    source = f"data:video/mp4;base64,{data}"
    return f'<video controls autoplay loop muted playsinline aria-label="{escape(label)}" src="{source}"></video>'


def pairs_list(items: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in items) + "</dl>\n"
