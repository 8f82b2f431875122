"""Stages as child processes that never outlive the flywheel, not even when it is killed with -9."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
GRACE_S = 5.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass
class Running:
    """A started stage."""

    name: str
    process: subprocess.Popen
    log: Path
    began: float  # monotonic seconds

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def start(name: str, command: Sequence[str], log: Path, threads: int) -> Running:
    """Start ``command`` in a process group of its own with ``threads`` per numeric library; both outputs are appended to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
    with log.open("ab") as file:
        file.write(f"\n$ {' '.join(command)}\n".encode())
        file.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_die_with(os.getpid()) if sys.platform == "linux" else None,
        )
    return Running(name, process, log, time.monotonic())


def stop(running: Sequence[Running]) -> None:
    """End the process groups: a request first, force after a few seconds."""
    for stage in running:
        _signal(stage, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    for stage in running:
        try:
            stage.process.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            _signal(stage, signal.SIGKILL)
            stage.process.wait()


def tail(log: Path, lines: int) -> list[str]:
    """Return the last lines of a log, each cut to its last rewrite (progress bars) and to 200 characters."""
    text = log.read_bytes()[-20_000:].decode(errors="replace")
    return [line.rsplit("\r", 1)[-1][:200] for line in text.rstrip().splitlines()[-lines:]]


def printed(log: Path) -> list[str]:
    """Return what the last command in a log printed."""
    return log.read_text(errors="replace").rpartition("\n$ ")[2].splitlines()[1:] if log.is_file() else []


def _signal(stage: Running, number: int) -> None:
    if stage.process.poll() is None:
        try:
            os.killpg(stage.process.pid, number)
        except ProcessLookupError:
            return


def _die_with(parent: int):
    """Return what a child does before it becomes the stage: ask the kernel for SIGKILL at its parent's death."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the request
            os._exit(1)

    return ask
