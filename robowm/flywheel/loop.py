"""Runs the stages that are not done: side by side, longest path first, each as a process of its own."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robowm.errors import UserError
from robowm.flywheel.display import Display, Shown, clock
from robowm.flywheel.ledger import Entry, Ledger, request_of
from robowm.flywheel.processes import Running, printed, start, stop, tail
from robowm.flywheel.stages import Stage, expand, makespan, of_train_seed, order, train_seed_of, unit_name
from robowm.locks import exclusive
from robowm.progress import read_progress

COMMAND = (sys.executable, "-m", "robowm.apps.cli")
LOGS = "logs"
GATHERED = "all"  # unit of the stages that look at every unit
LOG_LINES = 15
POLL_S = 0.2
GATHER_WAIT_S = 600.0  # another flywheel may be gathering into the same folder

Compose = Callable[[str, Sequence[str]], Mapping[str, Any]]


def run(
    *,
    stages: Mapping[str, Mapping[str, Any]],
    task: str | Sequence[str],
    train_seed: int | Sequence[int],
    compose: Compose,
    output_dir: Path | str,
    offsets: Mapping[str, Mapping[str, int]] | None = None,
    per_task: Mapping[str, Mapping[str, Any]] | None = None,
    common: Mapping[str, Any] | None = None,
    final: Mapping[str, Mapping[str, Any]] | None = None,
    publish: Mapping[str, str] | None = None,
    workers: int = 2,
    threads: int = 1,
    command: Sequence[str] = COMMAND,
) -> dict[str, Any]:
    """Run ``stages`` (see stages.py) of every unit in ``task`` x ``train_seed``, then the ``final`` stages over all units that ended.

    ``compose(verb, overrides)`` returns a verb's whole config, so that every stage is checked before the first one starts and a changed
    default counts as a changed request. Finished stages are skipped, cut-off ones resume; a stage that fails stops only those that need
    it. The final stages wait for other flywheels' units in ``output_dir``; what they print is shown, and ``publish`` names files of theirs
    to copy ({to: from}, below ``output_dir``).

    Returns {"seconds", "stages": {name: {"status", "seconds"}}}. Raises UserError, naming the logs, if a stage failed.
    """
    output_dir = Path(output_dir)
    tasks = [task] if isinstance(task, str) else list(task)
    train_seeds = [train_seed] if isinstance(train_seed, int) else list(train_seed)
    if workers < 1 or not tasks or not train_seeds:
        raise UserError(f"a flywheel needs workers >= 1, a task and a train_seed; found {workers}, {tasks} and {train_seeds}")
    units = expand(stages, tasks=tasks, train_seeds=train_seeds, offsets=offsets or {}, per_task=per_task or {}, common=common or {})
    last = _final_stages(final or {}, stages, tasks, train_seeds, output_dir, common or {})
    requests = {stage.name: request_of(stage.verb, compose(stage.verb, stage.words())) for stage in [*units, *last]}
    ledger, display, began = Ledger(output_dir), Display(), time.monotonic()
    with ExitStack() as locks:
        for one in tasks:
            for seed in train_seeds:
                locks.enter_context(exclusive(output_dir / unit_name(one, seed), wait_s=3.0))
        loop = _Loop(units, requests, ledger, display, workers, threads, tuple(command))
        loop.run()
    status = dict(loop.status)
    open_units = ledger.unfinished(lambda unit: of_train_seed(stages, train_seed_of(unit)), GATHERED)
    if last and not loop.failed and not open_units:
        with exclusive(output_dir / GATHERED, wait_s=GATHER_WAIT_S):
            gathered = _Loop(last, requests, ledger, display, workers, threads, tuple(command), extra_inputs=ledger.results())
            gathered.run()
            _publish(publish or {}, output_dir)
        status |= gathered.status
        for stage in last:
            print(*printed(ledger.folder(LOGS) / log_name(stage.name)), sep="\n")
    elif last and open_units:
        display.say(f"not gathered yet: {', '.join(open_units)} not finished")
    return _summary(status, time.monotonic() - began, output_dir)


def _publish(files: Mapping[str, str], output_dir: Path) -> None:
    for target, source in files.items():
        if (output_dir / source).is_file():
            shutil.copyfile(output_dir / source, output_dir / target)


def log_name(stage: str) -> str:
    """Return the file name of a stage's log."""
    return f"{stage.replace('/', '.')}.log"


def _final_stages(final, stages, tasks, train_seeds, output_dir: Path, common) -> list[Stage]:
    """Return the stages of the unit "all"; ``{output_dir}`` in their overrides is the flywheel's folder."""
    found = []
    for name, node in final.items():
        overrides = {key: _with_root(value, output_dir) for key, value in (node.get("overrides") or {}).items()}
        needs = tuple(f"{GATHERED}/{need}" for need in node.get("needs") or [])
        found.append(Stage(f"{GATHERED}/{name}", node["verb"], overrides, needs, float(node.get("minutes", 1.0)), common))
    order(found)
    return found


def _with_root(value: Any, root: Path) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_root(item, root) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_root(item, root) for item in value]
    return value.replace("{output_dir}", str(root)) if isinstance(value, str) else value


@dataclass
class _Loop:
    """The scheduler's state. ``status`` of a stage: done, skipped, failed, blocked."""

    stages: Sequence[Stage]
    requests: Mapping[str, str]
    ledger: Ledger
    display: Display
    workers: int
    threads: int
    command: tuple[str, ...]
    extra_inputs: Mapping[str, str] = field(default_factory=dict)
    status: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        return [name for name, entry in self.status.items() if entry["status"] in ("failed", "blocked")]

    def run(self) -> None:
        priority = order(self.stages)
        waiting = sorted(self.stages, key=lambda stage: -priority[stage.name])
        try:
            while waiting or self.running:
                waiting = self._start_what_can(waiting)
                self._reap()
                self._show(waiting)
                if self.running:
                    time.sleep(POLL_S)
        finally:
            stop(self.running)

    def _start_what_can(self, waiting: Sequence[Stage]) -> list[Stage]:
        """Skip, block or start stages of ``waiting`` in its order and return the others."""
        left = []
        for stage in waiting:
            if any(self.status.get(need, {}).get("status") in ("failed", "blocked") for need in stage.needs):
                self._end(stage.name, "blocked", 0.0)
            elif not all(need in self.outputs for need in stage.needs):
                left.append(stage)
            elif self.ledger.is_done(stage.name, wanted := self._wanted(stage)):
                entry = self.ledger.read(stage.name)
                self.outputs[stage.name] = entry.output
                self._end(stage.name, "skipped", entry.seconds)
            elif len(self.running) < self.workers:
                self._start(stage, wanted)
            else:
                left.append(stage)
        return left

    def _wanted(self, stage: Stage) -> Entry:
        inputs = {need: self.outputs[need] for need in stage.needs}
        return Entry(self.requests[stage.name], {**self.extra_inputs_of(stage), **inputs})

    def extra_inputs_of(self, stage: Stage) -> dict[str, str]:
        """Return the results that a gathering stage looks at without naming them."""
        return {name: output for name, output in self.extra_inputs.items() if not name.startswith(f"{GATHERED}/")}

    def _start(self, stage: Stage, wanted: Entry) -> None:
        if aside := self.ledger.begin(stage.name, wanted):
            self.display.say(f"{stage.name}: request or inputs changed; the earlier result is kept in {aside}")
        folders = {need: str(self.ledger.folder(need)) for need in stage.needs}
        folder = self.ledger.folder(stage.name)
        words = [*self.command, stage.verb, *stage.words(folders), f"output_dir={folder}"]
        log = self.ledger.folder(LOGS) / log_name(stage.name)
        self.running.append(start(stage.name, words, log, self.threads))
        self.display.say(f"{stage.name}: started")

    def _reap(self) -> None:
        for stage in [stage for stage in self.running if stage.process.poll() is not None]:
            self.running.remove(stage)
            if stage.process.returncode == 0:
                self.outputs[stage.name] = self.ledger.finish(stage.name, stage.seconds)
                self._end(stage.name, "done", stage.seconds)
                self.display.say(f"{stage.name}: done in {clock(stage.seconds)}")
                continue
            self._end(stage.name, "failed", stage.seconds)
            self.display.say(
                f"{stage.name}: FAILED with exit code {stage.process.returncode} after {clock(stage.seconds)}; {stage.log} ends"
            )
            for line in tail(stage.log, LOG_LINES):
                self.display.say(f"    {line}")

    def _end(self, name: str, status: str, seconds: float) -> None:
        self.status[name] = {"status": status, "seconds": round(seconds, 1)}

    def _show(self, waiting: Sequence[Stage]) -> None:
        shown = [Shown(stage.name, stage.seconds, read_progress(self.ledger.folder(stage.name))) for stage in self.running]
        left = {stage.name: stage.minutes * 60 for stage in self.stages if stage.name not in self.status}
        for stage in shown:
            eta = stage.progress and stage.progress["eta_s"]
            left[stage.name] = eta if eta is not None else max(left[stage.name] - stage.seconds, 5.0)
        unfinished = [stage for stage in self.stages if stage.name in left]
        seconds = makespan(unfinished, left, [stage.name for stage in shown], self.workers)
        self.display.show(len(self.status), len(self.stages), seconds, shown)


def _summary(status: Mapping[str, dict[str, Any]], seconds: float, output_dir: Path) -> dict[str, Any]:
    """Print the table and return it; raise if a stage failed."""
    width = max(map(len, status), default=0)
    for name, entry in status.items():
        print(f"  {name:<{width}}  {entry['status']:<8} {clock(entry['seconds']):>8}")
    failed = [name for name, entry in status.items() if entry["status"] == "failed"]
    blocked = sum(entry["status"] == "blocked" for entry in status.values())
    print(f"{len(status) - len(failed) - blocked} of {len(status)} stages done, {clock(seconds)} this time")
    if failed:
        raise UserError(
            f"{len(failed)} stage(s) failed ({', '.join(failed)}), {blocked} wait for them; see {output_dir / LOGS}, put it right "
            f"and run the same command again: finished stages are kept"
        )
    return {"seconds": round(seconds, 1), "stages": dict(status)}
