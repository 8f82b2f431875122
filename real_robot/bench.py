"""``python -m real_robot.bench``: measure collection on the simulated robot and write a results file.

Parts, each in a folder of its own under ``output_dir``, skipped once done: ``collection`` (rate, labels, memory), ``kills`` (what a kill
costs), ``estop`` (how long an emergency stop takes), ``round`` (a round of HABC through the scripts).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from real_robot.benches import collection, estop, kills, round
from real_robot.benches.stage import TASK, stage
from real_robot.commands import App, main_of
from robowm.errors import UserError, nearest
from robowm.jsonl import append_lines, recover_lines
from robowm.report.gather import RESULTS, gather, write_results
from robowm.report.study import Stage

APP = App("bench", "real_robot.bench:run", about="measure collection, kills, emergency stops and a round of HABC on the simulated robot")
PARTS = ("collection", "kills", "estop", "round")
CLOCK = "seconds.jsonl"
PAIR = {"task": TASK, "a": "habc", "b": "base", "metric": "success"}


def run(
    *,
    output_dir: Path | str,
    parts: Sequence[str],
    size_name: str,
    collection_s: float,
    kill_points: int,
    kill_speed: float,
    presses: int,
    demos: int,
    rollouts: int,
    episodes: int,
    speed: float,
    first_seed: int,
) -> dict[str, Any]:
    """Do ``parts`` and return the results, also in ``output_dir/results.json``. Killed and called again it goes on.

    ``collection_s`` seconds are recorded at 30 Hz; ``kill_points`` runs of collect are killed, of a robot ``kill_speed`` times as fast;
    escape is pressed ``presses`` times; the round has ``demos`` demonstrations, ``rollouts`` episodes of the policy with a person beside
    it, and ``episodes`` starts from ``first_seed`` on for each policy, with a robot ``speed`` times as fast, at size ``size_name``.
    """
    output_dir = Path(output_dir)
    for name in parts:
        if name not in PARTS:
            raise UserError(f"parts has {name!r}; {nearest(name, PARTS)}")
    work: dict[str, Callable[[Path], None]] = {
        "collection": lambda folder: stage(
            folder, {"seconds": collection_s}, lambda f: collection.measure(f, collection_s), [f"Collection: {collection_s:g} s at 30 Hz."]
        ),
        "kills": lambda folder: stage(
            folder, {"kills": kill_points, "speed": kill_speed}, lambda f: kills.measure(f, kill_points, kill_speed), []
        ),
        "estop": lambda folder: stage(folder, {"presses": presses}, lambda f: estop.measure(f, presses), [estop.NOTE]),
        "round": lambda folder: round.run(
            folder, size=size_name, demos=demos, rollouts=rollouts, episodes=episodes, speed=speed, first_seed=first_seed
        ),
    }
    for name in parts:
        began = time.monotonic()
        work[name](output_dir / name)
        append_lines(output_dir / CLOCK, [{"stage": name, "seconds": round_to(time.monotonic() - began)}])
    return _results(output_dir, parts)


def round_to(seconds: float) -> float:
    """Return ``seconds`` to a tenth."""
    return float(f"{seconds:.1f}")


def _results(output_dir: Path, parts: Sequence[str]) -> dict[str, Any]:
    spent: dict[str, float] = {}
    for line in recover_lines(output_dir / CLOCK):
        spent[line["stage"]] = spent.get(line["stage"], 0.0) + line["seconds"]
    notes = ["A simulated robot on this machine: rates and latencies are those of the scripts, not of motors, cameras and cables."]
    if "round" in parts:
        notes.append("habc goes on from base for more updates; this round shows that the scripts feed the method, not what it gains.")
    if left := [name for name in PARTS if name not in parts]:
        notes.append(f"Not run: {', '.join(left)}.")
    results = gather(
        output_dir,
        study="collection",
        command="python -m real_robot.bench",
        pairs=[PAIR] if "round" in parts else [],
        wanted_arms=["base", "habc"] if "round" in parts else [],
        notes=notes,
        stages=[Stage("", name, None, seconds) for name, seconds in spent.items()],
    )
    write_results(output_dir / RESULTS, results)
    return results


if __name__ == "__main__":
    sys.exit(main_of(APP))
