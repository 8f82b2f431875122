"""How evenly the collect script records for a long time: rate, labels that were sent and are not stored, memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

import numpy as np

from real_robot.benches.stage import TASK, command, counted
from real_robot.collect import LINES
from robowm.data.spec import CONTROLLER
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.jsonl import append_lines, recover_lines
from robowm.metrics.stats import bootstrap_mean
from robowm.types import EvalRow

FPS, SIZE = 30, 128
EPISODE_S = 60
WARM_UP_S = 150.0  # seconds in which memory may still grow, as the first episodes are saved; a shorter run has no rss_growth
SAMPLE_S = 2.0
MEMORY = "memory.jsonl"


def measure(folder: Path, seconds: float) -> list[EvalRow]:
    """Record ``seconds`` seconds in episodes of a minute (or one shorter one) at 30 Hz with two 128 px cameras, and measure it."""
    steps = round(min(seconds, EPISODE_S) * FPS)
    episodes = max(round(seconds / EPISODE_S), 1)
    words = ["robot=sim", f"robot.image_size={SIZE}", f"fps={FPS}", f"max_steps={steps}", "operator=scripted", "operator.settle_s=1e9"]
    words += ["teleop.sets_up_scenes=true", f"episodes={episodes}", f"output_dir={folder / 'store'}"]
    _watch(command("collect", *words), folder / MEMORY)
    store = EpisodeStore.open(folder / "store")
    return rows(store, recover_lines(store.path / LINES), recover_lines(folder / MEMORY))


def _watch(words: list[str], log: Path) -> None:
    """Run ``words`` and write its resident memory, and how busy the machine is, down as it goes."""
    began = time.monotonic()
    process = subprocess.Popen(words)
    try:
        while process.poll() is None:
            if (rss := rss_mib(process.pid)) is not None:
                facts = {"seconds": round(time.monotonic() - began, 2), "rss_mib": rss, "load": os.getloadavg()[0]}
                append_lines(log, [{"pid": process.pid, **facts}])
            time.sleep(SAMPLE_S)
    finally:
        if process.poll() is None:
            process.kill()
    if process.returncode:
        raise UserError(f"collect ended with {process.returncode} (see above); put it right and run the bench again, it resumes")


def rss_mib(pid: int) -> float | None:
    """Return the resident memory of process ``pid`` in MiB, None where it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = [line for line in text.splitlines() if line.startswith("VmRSS")]
    return int(found[0].split()[1]) / 1024 if found else None


def rows(store: EpisodeStore, lines: list[dict], memory: list[dict]) -> list[EvalRow]:
    """Return the rows of a finished collection from its store, its lines and the samples of its memory."""
    latest = {line["episode"]: line for line in lines}
    rates = bootstrap_mean([line["achieved_hz"] for line in latest.values()], seed=0)
    rate = EvalRow(TASK, "collect", "achieved_hz", rates.value, rates.low, rates.high, rates.n)
    lowest = counted("collect", "achieved_hz@min", min(line["achieved_hz"] for line in latest.values()), len(latest))
    sent = sum(sum(line["commands"].values()) for line in latest.values())
    stored = sum(len(store.rows(i, CONTROLLER)) for i in range(len(store)))
    dropped = counted("collect", "labels_dropped", sent - stored, sent)
    load = counted("collect", "load_average", float(np.median([line["load"] for line in memory])), len(memory))  # others' work too
    return [rate, lowest, *_cameras(latest.values()), dropped, *growth(memory), load]


def _cameras(lines: Collection[dict]) -> list[EvalRow]:
    """Return of each camera the rate of its new pictures and the share that was recorded a second time, means over episodes."""
    found = []
    for name in next(iter(lines))["cameras"]:
        for metric, key in (("camera_hz", "hz"), ("repeated_pictures", "repeated")):
            mean = bootstrap_mean([line["cameras"][name][key] for line in lines], seed=0)
            found.append(EvalRow(TASK, "collect", f"{metric}/{name}", mean.value, mean.low, mean.high, mean.n))
    return found


def growth(memory: list[dict]) -> list[EvalRow]:
    """Return how much resident memory grew after the warm-up, in MiB: the median of the last tenth of samples minus the first tenth's."""
    if not memory:
        raise UserError("the memory of collect was not sampled; delete the stage's folder and run the bench again")
    last = [line["rss_mib"] for line in memory if line["pid"] == memory[-1]["pid"]]
    settled = [line["rss_mib"] for line in memory if line["pid"] == memory[-1]["pid"] and line["seconds"] > WARM_UP_S]
    peak = counted("collect", "rss_mib/collect@max", float(max(last)), len(last))
    if not settled:
        return [peak]
    kept = np.array(settled)
    part = max(len(kept) // 10, 1)
    return [counted("collect", "rss_growth", float(np.median(kept[-part:]) - np.median(kept[:part])), len(kept)), peak]
