"""``python -m real_robot.collect``: record teleoperated demonstrations, or a policy's episodes in which a person takes over.

``output_dir`` becomes an EpisodeStore as every other verb reads it, with a line for each episode in ``collection.jsonl`` (outcome, quality,
who did how much, rates and latencies). A kill at any moment costs at most the episode that is being recorded; what there is of it is set
aside in ``interrupted/``, and the same command goes on.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from real_robot.commands import App, main_of
from real_robot.labels import Event
from real_robot.operator import Operator
from real_robot.pilots import Chunking
from real_robot.session import Played, Session
from real_robot.setup import Body, Safety, body, load, plan_body, rules, watcher
from real_robot.spool import Spool, set_aside
from robowm.artefacts import claim, read_artefact
from robowm.data.lerobot import export_lerobot, exported
from robowm.data.sidecar import write_sidecar
from robowm.data.spec import StoreSpec
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.jsonl import append_lines, recover_lines
from robowm.progress import Progress
from robowm.seeds import SEED_RANGES, check_seeds
from robowm.types import Controller, Source

APP = App("collect", "real_robot.collect:run", about="record demonstrations, or a policy's episodes in which a person takes over")
LINES, QUALITY = "collection.jsonl", "quality"
log = logging.getLogger(__name__)


def run(
    *,
    robot: Mapping[str, Any],
    teleop: Mapping[str, Any] | None,
    policy: Mapping[str, Any],
    operator: Operator,
    chunking: Chunking,
    safety: Safety,
    task: str,
    output_dir: Path | str,
    episodes: int,
    fps: float,
    max_steps: int,
    first_seed: int | None = None,
    round: int = 0,
    image_size: Sequence[int] | None = None,
    gripper: Sequence[float] | None = None,
    rewind_s: float = 2.0,
    familiar_to: str | Path | None = None,
    lerobot_dir: str | Path | None = None,
    view: bool = False,
) -> dict[str, Any]:
    """Record ``episodes`` episodes of ``task`` at ``fps`` and return their counts.

    Without ``policy.path`` a person demonstrates (kind demo); with it the policy acts, and a person takes over, recovers, corrects and
    gives back (kind rollout, or human where somebody did). ``robot`` and ``teleop`` are lerobot's configs, ``operator`` hears the person.
    Episodes are numbered from ``first_seed`` (default: the first of demonstrations or of rollouts); simulated scenes start from it.
    ``image_size`` (height, width) scales pictures, ``gripper`` says (open, closed) of the action named so. A rewind goes back ``rewind_s``
    seconds, and further to a state that the demonstrations in store ``familiar_to`` know. ``lerobot_dir`` gets a LeRobotDataset of it all.
    ``view`` shows it in Rerun. The same command goes on after an emergency stop (a UserError), and further if asked for more ``episodes``.
    """
    output_dir = Path(output_dir)
    device, spec = plan_body(robot, fps=fps, image_size=image_size, gripper=gripper)
    pilot = load(policy, spec, task)
    if pilot is None and teleop is None:
        raise UserError("nobody would move the robot: give policy.path=..., or teleop=... for demonstrations")
    purpose = "demonstrations" if pilot is None else "rollouts"
    first = SEED_RANGES[purpose].start if first_seed is None else first_seed
    check_seeds(purpose, range(first, first + episodes))
    inputs = {} if pilot is None else {"policy": pilot.name}
    config = {"robot": device.name, "task": task, "spec": spec.to_json(), "max_steps": max_steps, "first_seed": first, "round": round}
    finished = claim(output_dir, kind="store", inputs=inputs, config=config)
    store = _opened(output_dir, spec, episodes, lerobot_dir)
    if finished is not None and finished["episodes"] == episodes:
        _export(store, lerobot_dir, device.name)
        return finished["counts"]
    store.unseal()
    log_of = _Lines(output_dir / LINES, len(store))
    _clear(output_dir)
    how = rules(max_steps=max_steps, rewind_s=rewind_s, familiar_to=familiar_to, safety=safety, spec=spec)
    people = {"teleop": teleop, "policy": pilot, "chunking": chunking, "operator": operator, "safety": safety, "task": task}
    try:
        if len(store) < episodes:
            with body(device, spec, **people) as made, Progress(output_dir, episodes, "collect", done=len(store)) as progress:
                session = Session(made.arm, made.crew, how, watcher(view, spec))
                _record_all(session, made, store, log_of, progress, first, episodes, task, round)
                session.go_home(made.home)
    finally:
        _clear(output_dir)
    return _seal(store, log_of.lines, inputs, config, lerobot_dir, device.name)


def _record_all(session: Session, made: Body, store: EpisodeStore, lines: _Lines, progress, first, episodes, task, round) -> None:
    tried: Counter[int] = Counter()
    while len(store) < episodes:
        seed = first + len(store)
        if not session.prepare(seed, made.home):
            raise KeyboardInterrupt
        with Spool(store.path, store.spec, {"seed": seed, "task": task}) as spool:
            rng = np.random.default_rng([tried[seed], seed])
            played = session.play(spool, rng, after=made.arm.clock.now())
            tried[seed] += 1
            if played.end in (Event.SUCCESS, Event.FAILURE) and played.steps:
                success = float(played.end == Event.SUCCESS)
                source = _source(played, made, seed, round)
                episode = spool.finish(played.last, task=task, source=source, success=success, judged_by=made.crew.operator.judge)
                lines.add(_line(len(store), seed, played, success, tried[seed], made))
                store.append(episode)
                progress.advance(1, success=sum(meta.success == 1 for meta in store.metas) / len(store))
                continue
        if played.end == Event.QUIT:
            raise KeyboardInterrupt
        print(f"episode {seed}: recorded again", file=sys.stderr, flush=True)


def _opened(folder: Path, spec: StoreSpec, episodes: int, lerobot_dir: str | Path | None) -> EpisodeStore:
    """Return the store in ``folder``; refuse more episodes than ``episodes``, and a ``lerobot_dir`` that is no export of its first ones."""
    store = EpisodeStore.open_or_create(folder, spec)
    if len(store) > episodes:
        raise UserError(f"{folder} holds {len(store)} episodes, episodes={episodes} asks for fewer; choose another output_dir")
    if lerobot_dir is not None and Path(lerobot_dir).exists():
        found, whole = exported(lerobot_dir), [meta.to_json() for meta in store.metas]
        if not found or found != whole[: len(found)]:
            raise UserError(f"lerobot_dir={lerobot_dir} exists and holds something else; give another folder, or delete it")
    return store


def _export(store: EpisodeStore, folder: str | Path | None, robot_type: str) -> None:
    """Write ``store`` in lerobot's format to ``folder``; an export of fewer episodes moves beside it, since somebody may have edited it."""
    if folder is None or (before := exported(folder)) == [meta.to_json() for meta in store.metas]:
        return
    folder = Path(folder)
    if before is not None:
        aside = folder.with_name(f"{folder.name}_{len(before)}_episodes")
        if aside.exists():
            raise UserError(f"{aside} is in the way of the export of {len(before)} episodes in lerobot_dir={folder}; move or delete it")
        log.warning("the export of the first %d episodes moves to %s", len(before), aside)
        folder.rename(aside)
    export_lerobot(store, folder, use_videos=False, robot_type=robot_type)


def _clear(folder: Path) -> None:
    """Set aside what a run that was killed or that failed left open."""
    for left in set_aside(folder):
        log.warning("%d steps of episode %s were not finished; they lie in %s", left["steps"], left["seed"], left["folder"])


def _source(played: Played, made: Body, seed: int, round: int) -> Source:
    """Say what kind of episode it was: a person's steps make a policy's rollout a human one."""
    policy = made.crew.policy
    if policy is None:
        return Source(kind="demo", seed=seed, policy=f"teleop/{made.crew.teleop.teleop.name}", round=round)
    helped = played.commands[Controller.HUMAN_RECOVERY] + played.commands[Controller.HUMAN_CORRECTION]
    return Source(kind="human" if helped else "rollout", seed=seed, policy=policy.policy.name, round=round)


def _line(number: int, seed: int, played: Played, success: float, tries: int, made: Body) -> dict[str, Any]:
    return {
        "episode": number,
        "seed": seed,
        "success": success,
        "judged_by": made.crew.operator.judge,
        "quality": played.quality,
        "steps": played.steps,
        "commands": {controller.name.lower(): count for controller, count in played.commands.items()},
        "events": played.events,
        "tries": tries,
        "read_errors": sum(made.arm.read_errors.values()),
        **played.report,
    }


class _Lines:
    """One line for each stored episode; those beyond the ``stored`` first were written by a run that was killed before it stored theirs."""

    def __init__(self, path: Path, stored: int) -> None:
        self._path = path
        self.lines = {line["episode"]: line for line in recover_lines(path) if line["episode"] < stored}

    def add(self, line: dict[str, Any]) -> None:
        """Write the line of the episode that is stored next."""
        append_lines(self._path, [line])
        self.lines[line["episode"]] = line


def _seal(store: EpisodeStore, lines: Mapping[int, Any], inputs, config, lerobot_dir, robot_type: str) -> dict[str, Any]:
    """Write the quality of each step's episode beside the store, close it, and export it."""
    quality = [lines[i]["quality"] if i in lines else 0 for i in range(len(store))]
    write_sidecar(store, QUALITY, {"quality": np.repeat(np.array(quality, np.float32), store.lengths)})
    _export(store, lerobot_dir, robot_type)
    metas = store.metas
    commands: Counter[str] = Counter()
    for line in lines.values():
        commands.update(line["commands"])
    counts = {"episodes": len(store), "successes": int(sum(meta.success == 1 for meta in metas)), "steps": int(store.lengths.sum())}
    counts |= {f"steps_{name}": count for name, count in sorted(commands.items())}
    store.seal(inputs=inputs, config=config, counts=counts)
    return read_artefact(store.path, "store")["counts"]


if __name__ == "__main__":
    sys.exit(main_of(APP))
