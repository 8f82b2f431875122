"""Progress of a long loop: a bar where someone is watching, a line a minute in a log, and ``progress.json`` for the flywheel."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

PROGRESS = "progress.json"
WRITE_EVERY = 1.0  # seconds between two writes of the file
SAY_EVERY = 60.0  # seconds between two lines where there is no terminal


class Progress:
    """Counts towards ``total`` under ``label``; use as a context manager.

    ``done`` is what an earlier, interrupted run finished: it counts, but the time left is estimated from this process alone.
    The file ``output_dir/progress.json`` holds ``{done, total, label, eta_s}`` and is replaced atomically at most once a second; that it
    cannot be written (a full disk) never stops the loop it reports on. ``output_dir=None`` writes no file.
    """

    def __init__(self, output_dir: Path | str | None, total: int, label: str, *, done: int = 0) -> None:
        self._file = None if output_dir is None else Path(output_dir) / PROGRESS
        self._total, self._label, self._start, self._done = total, label, done, done
        self._began, self._written = time.monotonic(), -WRITE_EVERY
        self._said = self._began
        self._bar = _bar(total, label, done)
        self._write(force=True)

    def advance(self, n: int = 1, **facts: float | str) -> None:
        """Count ``n`` more; ``facts`` (a loss, a success rate) stand behind the bar."""
        self._done += n
        if self._bar is not None:
            if facts:
                self._bar.set_postfix({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in facts.items()}, refresh=False)
            self._bar.update(n)
        elif time.monotonic() - self._said >= SAY_EVERY:
            self._said = time.monotonic()
            shown = " ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in facts.items())
            print(f"{self._label} {self._done}/{self._total}, {self.eta_s or 0:.0f} s left {shown}".rstrip(), file=sys.stderr, flush=True)
        self._write()

    @property
    def eta_s(self) -> float | None:
        """Seconds left at the mean rate of this process, None before the first unit of work."""
        fresh = self._done - self._start
        if fresh <= 0:
            return None
        return (time.monotonic() - self._began) / fresh * max(self._total - self._done, 0)

    def close(self) -> None:
        """Write the last count and end the bar."""
        self._write(force=True)
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _write(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._file is None or (not force and now - self._written < WRITE_EVERY):
            return
        self._written = now
        eta = self.eta_s
        record = {"done": self._done, "total": self._total, "label": self._label, "eta_s": None if eta is None else round(eta, 1)}
        temporary = self._file.with_name(f".{PROGRESS}.{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(record) + "\n")
            os.replace(temporary, self._file)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()


def read_progress(folder: Path | str) -> dict | None:
    """Return the newest ``{done, total, label, eta_s}`` of the run in ``folder``, or None where nothing reports yet."""
    try:
        return json.loads((Path(folder) / PROGRESS).read_text())
    except (OSError, json.JSONDecodeError):
        return None


def _bar(total: int, label: str, done: int):
    if not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    return tqdm(total=total, initial=done, desc=label, dynamic_ncols=True)
