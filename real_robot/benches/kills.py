"""What a kill costs: the collect script is killed at random moments, again and again, and resumed: open episodes alone may be lost."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import numpy as np

from real_robot.benches.stage import command, counted
from real_robot.collect import LINES
from real_robot.spool import OPEN
from robowm.data.check import check
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.jsonl import append_lines, recover_lines
from robowm.types import EvalRow

LOG = "kills.jsonl"
WINDOW_S = 4.0  # a kill comes up to so many seconds after recording began
START_S = 180.0
ENOUGH = 100_000  # episodes asked for: more than come together


def measure(folder: Path, kills: int, speed: float) -> list[EvalRow]:
    """Kill ``kills`` runs on one store, check it after each, and return the rows; the robot lives ``speed`` times as fast."""
    log, store = folder / LOG, folder / "store"
    words = ["size=debug", "robot=sim", f"robot.speed={speed}", "operator=scripted", "max_steps=25", "safety.stale_s=2", "teleop.noise=0"]
    words = command("collect", *words, f"episodes={min(ENOUGH, 9000)}", f"output_dir={store}")
    while (done := len(recover_lines(log))) < kills:
        before = _stored(store)
        at = np.random.default_rng([10, done]).uniform(0, WINDOW_S)
        _kill(words, store, at)
        after = EpisodeStore.open(store)
        damaged = [finding for finding in check(after) if finding.level == "error" and finding.key != "store"] if len(after) else []
        acknowledged = len({line["episode"] for line in recover_lines(store / LINES)})
        lost = max(acknowledged - 1 - len(after), 0) + max(before - len(after), 0) + len({finding.episode for finding in damaged})
        seeds = [meta.source.seed for meta in after.metas]
        lost += sum(seed != i for i, seed in enumerate(seeds))  # a gap or a repetition
        append_lines(log, [{"after_s": round(at, 3), "before": before, "stored": len(after), "lost_beyond_bound": lost}])
    lines = recover_lines(log)[:kills]
    lost = sum(line["lost_beyond_bound"] for line in lines)
    stored = counted("collect", "episodes_stored", lines[-1]["stored"], len(lines))
    return [
        counted("collect", "kill_points", len(lines), len(lines)),
        counted("collect", "episodes_lost_beyond_bound", lost, len(lines)),
        stored,
    ]


def _stored(store: Path) -> int:
    return len(EpisodeStore.open(store)) if (store / "zarr.json").is_file() else 0


def _kill(words: list[str], store: Path, at: float) -> None:
    """Start ``words`` and kill it ``at`` seconds after it began to record."""
    known = {path.name for path in (store / OPEN).glob("*")}
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + START_S
    while not {path.name for path in (store / OPEN).glob("*")} - known:
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            raise UserError(f"collect did not begin to record (exit code {process.poll()}); run it by hand: {' '.join(words[1:])}")
        time.sleep(0.005)
    time.sleep(at)
    if process.poll() is not None:
        raise UserError(f"collect ended by itself with {process.returncode} before it was killed; run it by hand: {' '.join(words[1:])}")
    process.send_signal(signal.SIGKILL)
    process.wait()
