"""What the flywheel shows while it runs: bars on a terminal, a line now and then in a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

REDRAW_S = 1.0
LINE_EVERY_S = 30.0
BAR = 24


@dataclass(frozen=True)
class Shown:
    """One running stage."""

    name: str
    seconds: float
    progress: dict | None  # {done, total, label, eta_s}


class Display:
    """Redraws a block of bars in place where ``out`` is a terminal, else prints one line every half minute."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._tty = self._out.isatty()
        self._drawn = 0  # lines of the block on the screen
        self._last = 0.0
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print something that stays."""
        self._erase()
        print(f"[{clock(time.monotonic() - self._began)}] {text}", file=self._out, flush=True)

    def show(self, done: int, total: int, left_s: float, running: Sequence[Shown]) -> None:
        """Show where things stand, if it is time to."""
        now = time.monotonic()
        if now - self._last < (REDRAW_S if self._tty else LINE_EVERY_S):
            return
        self._last = now
        head = f"{done}/{total} stages, about {clock(left_s)} left"
        if not self._tty:
            self.say(f"{head}; " + "; ".join(_line(stage) for stage in running))
            return
        self._erase()
        lines = [f"  {bar(stage.progress)} {_line(stage)}" for stage in running]
        lines.append(f"  {bar({'done': done, 'total': total})} {head}")
        self._out.write("".join(f"{line[:160]}\n" for line in lines))
        self._out.flush()
        self._drawn = len(lines)

    def _erase(self) -> None:
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0


def bar(progress: dict | None) -> str:
    """Return a bar of fixed width."""
    share = min(progress["done"] / progress["total"], 1.0) if progress and progress["total"] else 0.0
    full = int(share * BAR)
    return f"[{'#' * full}{'.' * (BAR - full)}]"


def clock(seconds: float) -> str:
    """Return ``m:ss``, or ``h:mm:ss`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _line(stage: Shown) -> str:
    if stage.progress is None:
        return f"{stage.name} {clock(stage.seconds)}"
    done, total, eta = stage.progress["done"], stage.progress["total"], stage.progress["eta_s"]
    return f"{stage.name} {done}/{total}" + ("" if eta is None else f" {clock(eta)} left")
