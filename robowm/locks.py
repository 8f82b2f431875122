"""One process at a time per run folder. The lock belongs to the process, so that no kill leaves it behind."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robowm.errors import UserError

LOCK = ".lock"


@contextmanager
def exclusive(folder: Path | str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold ``folder`` (made where missing) against every other process; ask again for ``wait_s`` seconds before giving up.

    A POSIX record lock: released when this process ends in whatever way, and not inherited by the worker processes that it forks.
    """
    path = Path(folder) / LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}; choose another output_dir") from error
    with file:
        _lock(file, folder, time.monotonic() + wait_s)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _lock(file, folder: Path | str, until: float) -> None:
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if time.monotonic() >= until:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise UserError(f"{folder} is in use by process {holder}; wait for it or choose another output_dir") from error
            time.sleep(0.1)
