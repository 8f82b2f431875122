"""Keys of the terminal, read as they are pressed, also over SSH: one reader for everything that wants them."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable

from robowm.errors import UserError

NAMES = {"\n": "enter", "\r": "enter", " ": "space", "\t": "tab", "\x7f": "backspace", "\x1b": "esc"}
LOST = "lost"  # what listeners hear when the terminal is gone: closed, or its connection broke
ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left"}


class Keys:
    """Calls every listener with the name of each key, LOST at the end, from a thread of its own; ``close`` gives the terminal back.

    Escape is told apart from arrow keys by what follows at once. Ctrl-C still interrupts the program.
    """

    def __init__(self, fd: int | None = None) -> None:
        self._fd = sys.stdin.fileno() if fd is None else fd
        if not os.isatty(self._fd):
            raise UserError("the keyboard is read from a terminal, and there is none here; run in one, or choose another operator")
        self._listeners: list[Callable[[str], None]] = []
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        self._out_r, self._out_w = os.pipe()  # wakes the reader to end it
        self._thread = threading.Thread(target=self._read_on, name="keys", daemon=True)
        self._thread.start()

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with every key from now on."""
        self._listeners.append(listener)

    def close(self) -> None:
        """End the reader and restore the terminal. Safe to call twice."""
        if self._before is None:
            return
        os.write(self._out_w, b"x")
        self._thread.join(timeout=1.0)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
        self._before = None
        os.close(self._out_r)
        os.close(self._out_w)

    def _read_on(self) -> None:
        while True:
            ready, _, _ = select.select([self._fd, self._out_r], [], [])
            if self._out_r in ready:
                return
            try:
                read = os.read(self._fd, 64)
            except OSError:
                read = b""
            for key in split(read.decode(errors="ignore")) if read else [LOST]:  # bytes that are no text are no key
                for listener in self._listeners:
                    listener(key)
            if not read:
                return


def split(text: str) -> list[str]:
    """Return the names of the keys in what a terminal sent at once."""
    found, i = [], 0
    while i < len(text):
        arrow = ARROWS.get(text[i : i + 3])
        found.append(arrow or NAMES.get(text[i], text[i]))
        i += 3 if arrow else 1
    return found


_shared: list[Keys] = []


def terminal() -> Keys:
    """Return the one reader of this program's terminal, started when first asked for."""
    if not _shared:
        _shared.append(Keys())
    return _shared[0]


def release() -> None:
    """Give the terminal back."""
    while _shared:
        _shared.pop().close()
