"""``python -m real_robot.deploy``: let a policy act at a fixed rate, count how it does, and say how late everything was.

``output_dir`` gets ``episodes.jsonl`` as ``robowm evaluate`` writes it (task, arm, seed, success, steps), with rates and latencies in each
line, and ``evaluation.json`` with their intervals; ``latency.json`` is over all ticks together. Nothing is recorded: collect does that.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from real_robot.arm import Seen
from real_robot.commands import App, main_of
from real_robot.labels import Event
from real_robot.operator import Operator
from real_robot.pilots import Chunking
from real_robot.rates import quantiles
from real_robot.session import Played, Session
from real_robot.setup import Body, Safety, body, load, plan_body, rules, watcher
from robowm.artefacts import claim, fingerprint_json, write_artefact, write_json
from robowm.errors import UserError
from robowm.evaluation.policies import EPISODES, SUMMARY, summarise
from robowm.jsonl import append_lines, recover_lines
from robowm.progress import Progress
from robowm.seeds import SEED_RANGES, check_seeds
from robowm.types import Controller

APP = App("deploy", "real_robot.deploy:run", about="let a policy act at a fixed rate and report outcomes, rates and latencies")
LATENCY = "latency.json"


class _Unrecorded:
    """Takes steps and keeps nothing."""

    def add(self, seen: Seen, action: np.ndarray, controller: Controller) -> None:
        """See Record."""


def run(
    *,
    robot: Mapping[str, Any],
    teleop: Mapping[str, Any] | None,
    policy: Mapping[str, Any],
    operator: Operator,
    chunking: Chunking,
    safety: Safety,
    task: str,
    task_name: str,
    arm: str,
    output_dir: Path | str,
    episodes: int,
    fps: float,
    max_steps: int,
    purpose: str = "evaluation",
    first_seed: int | None = None,
    train_seed: int = 0,
    image_size: Sequence[int] | None = None,
    gripper: Sequence[float] | None = None,
    rewind_s: float = 2.0,
    view: bool = False,
) -> dict[str, Any]:
    """Play ``episodes`` episodes of the policy ``policy.path`` and return the summary of ``robowm evaluate`` plus ``latency``.

    ``task`` is the sentence it is asked for, ``task_name`` and ``arm`` its names in results. Episodes are numbered from ``first_seed``
    (default: the first of ``purpose``), which is what a simulated scene starts from. With ``teleop`` a person may take over; an episode in
    which somebody did counts as a failure of the policy. Killed and called again it goes on. UserError in one line.
    """
    output_dir = Path(output_dir)
    device, spec = plan_body(robot, fps=fps, image_size=image_size, gripper=gripper)
    pilot = load(policy, spec, task)
    if pilot is None:
        raise UserError("nobody would move the robot: give policy.path=..., the folder of train-policy or improve")
    first = SEED_RANGES[purpose].start if first_seed is None else first_seed
    check_seeds(purpose, range(first, first + episodes))
    labels = {"task": task_name, "arm": arm, "train_seed": train_seed}
    config = {**labels, "robot": device.name, "spec": spec.to_json(), "max_steps": max_steps, "first_seed": first, "episodes": episodes}
    config["chunking"] = {"kind": type(chunking).__name__, **vars(chunking)}
    inputs = {"policy": pilot.name}
    if claim(output_dir, kind="evaluation", inputs=inputs, config=config) is not None:
        return json.loads((output_dir / SUMMARY).read_text())
    done = len(recover_lines(output_dir / EPISODES))
    how = rules(max_steps=max_steps, rewind_s=rewind_s, familiar_to=None, safety=safety, spec=spec)
    people = {"teleop": teleop, "policy": pilot, "chunking": chunking, "operator": operator, "safety": safety, "task": task}
    if done < episodes:
        with body(device, spec, **people) as made, Progress(output_dir, episodes, f"deploy {arm}", done=done) as progress:
            session = Session(made.arm, made.crew, how, watcher(view, spec))
            for seed in range(first + done, first + episodes):
                played = _play(session, made, seed)
                line = _line(played, seed, max_steps, made)
                append_lines(output_dir / EPISODES, [{**labels, **line, **played.report}])
                progress.advance(1, success=line["success"])
            session.go_home(made.home)
    return _finish(output_dir, inputs, config, [first, first + episodes - 1])


def _play(session: Session, made: Body, seed: int) -> Played:
    """Play the episode of ``seed`` until somebody judges it."""
    while True:
        if not session.prepare(seed, made.home):
            raise KeyboardInterrupt
        played = session.play(_Unrecorded(), np.random.default_rng([0, seed]), after=made.arm.clock.now())
        if played.end == Event.QUIT:
            raise KeyboardInterrupt
        if played.end != Event.DISCARD and played.steps:
            return played
        print(f"episode {seed}: again", file=sys.stderr, flush=True)


def _line(played: Played, seed: int, max_steps: int, made: Body) -> dict[str, Any]:
    helped = played.commands[Controller.HUMAN_RECOVERY] + played.commands[Controller.HUMAN_CORRECTION]
    success = int(played.end == Event.SUCCESS and not helped)
    verdicts = {"success": success, "success_at_end": success, "success_at_reset": 0}
    facts = {"seed": seed, **verdicts, "steps": played.steps if success else max_steps, "human_steps": helped}
    return {
        **facts,
        "quality": played.quality,
        "judged_by": made.crew.operator.judge,
        "seconds": round(played.steps / made.arm.spec.fps, 3),
    }


def _finish(output_dir: Path, inputs: Mapping[str, str], config: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    log = output_dir / EPISODES
    lines = recover_lines(log)
    summary = {**summarise([log]), "latency": latency(lines)}
    write_json(output_dir / LATENCY, summary["latency"])
    write_json(output_dir / SUMMARY, summary)
    fingerprint = fingerprint_json({"inputs": inputs, "config": config})
    write_artefact(output_dir, kind="evaluation", fingerprint=fingerprint, inputs=inputs, config=config, seeds=list(seeds), **summary)
    return summary


def latency(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rates and latencies over the episodes ``lines``: of each quantile the median and the worst episode, milliseconds."""
    rates = [line["achieved_hz"] for line in lines if line["achieved_hz"] is not None]
    report: dict[str, Any] = {"achieved_hz": quantiles(rates), "lowest_hz": min(rates, default=None)}
    for name in ("observation_age_ms", "late_ms", "send_ms", "inference_ms", "delay_steps"):
        found = [line[name] for line in lines if line[name] is not None]
        if found:
            middle = {key: round(float(np.median([each[key] for each in found])), 4) for key in ("p50", "p99")}
            report[name] = {**middle, "max": max(each["max"] for each in found), "n": sum(each["n"] for each in found)}
    guard: Counter[str] = Counter()
    for line in lines:
        guard.update(line["guard"])
    return {
        **report,
        "starved": sum(line["starved"] for line in lines),
        "ticks": sum(line["ticks"] for line in lines),
        "guard": dict(guard),
    }


if __name__ == "__main__":
    sys.exit(main_of(APP))
