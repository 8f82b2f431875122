"""What imagination is worth: the actions of imagined episodes, executed in the simulator from the same starts.

``output_dir/episodes.jsonl`` has one line per episode, {index, seed, imagined, real, steps}; ``imagined_vs_real.json`` the confusion of the
imagined verdicts against the simulator's, with ``false_success/imagined``, the share of claimed successes that fail in the simulator.
``videos`` shows some of them, imagined beside simulated. The simulator's verdict per step becomes the sidecar ``simulator`` of the imagined
store (array ``success``), so that the classifier can also learn from imagined frames.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robowm.artefacts import claim, fingerprint_json, write_artefact, write_json
from robowm.data.sidecar import write_sidecar
from robowm.data.spec import StoreSpec, check_tasks, tasks_of
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.evaluation.video import write_video
from robowm.jsonl import append_lines, recover_lines
from robowm.metrics.calibration import confusion
from robowm.metrics.stats import wilson
from robowm.progress import Progress
from robowm.protocols import Described, Env
from robowm.rollout import Replay, Rollout, described, run_episodes
from robowm.types import Episode, EvalRow

EPISODES = "episodes.jsonl"
SUMMARY = "imagined_vs_real.json"
SIDECAR = "simulator"
KIND = "imagined_vs_real"


def run(
    *,
    env: Env,
    store: Path | str,
    output_dir: Path | str,
    episodes: int | None = None,
    arm: str = "world_model",
    videos: int = 3,
) -> dict[str, Any]:
    """Execute the first ``episodes`` (default: all) of the imagined ``store`` in ``env`` and return the summary.

    With successes alone in the store only the false-success rate is known; store failures too (``imagine keep_failures=true``) for recall.
    The sidecar is written when all episodes of the store were executed. ``videos`` of false successes, as many of true ones.
    """
    output_dir = Path(output_dir)
    opened = EpisodeStore.open(store)
    if wrong := [i for i, meta in enumerate(opened.metas) if meta.source.kind != "imagined"]:
        raise UserError(f"{store}: episode {wrong[0]} is a {opened.meta(wrong[0]).source.kind}, expected imagined ones alone")
    if len(opened) == 0:
        raise UserError(f"{store} holds no episodes; imagine some first")
    total = len(opened) if episodes is None else min(episodes, len(opened))
    _check_same(env, opened)
    config = {"task": env.task_name, "env": described(env), "arm": arm, "episodes": total}
    inputs = {"imagined": opened.fingerprint()}
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return json.loads((output_dir / SUMMARY).read_text())
    log = output_dir / EPISODES
    done = len(recover_lines(log))
    with Progress(output_dir, total, "execute imagined episodes", done=done) as progress:
        for first in range(done, total, env.n):
            numbers = range(first, min(first + env.n, total))
            imagined = [opened.episode(i) for i in numbers]
            rollouts = execute(env, imagined)
            lines = [_line(i, episode, rollout) for i, episode, rollout in zip(numbers, imagined, rollouts, strict=True)]
            for line, episode, rollout in zip(lines, imagined, rollouts, strict=True):
                _film(output_dir / "videos", line, episode, rollout, videos)
            append_lines(log, lines)
            progress.advance(len(lines))
    lines = recover_lines(log)
    summary = summarise(lines, env.task_name, arm)
    if total == len(opened):
        labels = np.concatenate([np.array(line["held"], np.float32) for line in lines])
        write_sidecar(opened, SIDECAR, {"success": labels}, inputs=inputs)
    write_json(output_dir / SUMMARY, summary)
    fingerprint = fingerprint_json({"inputs": inputs, "config": config})
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint, inputs=inputs, config=config, **summary)
    return summary


def _check_same(env: Env, imagined: EpisodeStore) -> None:
    """Raise UserError unless ``env`` plays the task of the ``imagined`` episodes and understands their actions."""
    check_tasks(env.reset([imagined.meta(0).source.seed]).task, tasks_of([imagined.metas]), f"the store {imagined.path}")
    if isinstance(env, Described):
        spec = StoreSpec(**env.spec())
        for name in ("action_kind", "action_names", "fps"):
            there, here = getattr(imagined.spec, name), getattr(spec, name)
            if there != here:
                raise UserError(f"{imagined.path} was imagined with {name} {there}, this environment has {here}; use the matching one")


def execute(env: Env, imagined: Sequence[Episode]) -> list[Rollout]:
    """Execute the actions of at most ``env.n`` episodes from their start seeds; each keeps its own number of steps or more."""
    replay = Replay([episode.action for episode in imagined])
    seeds = [episode.source.seed for episode in imagined]
    longest = max(len(episode) for episode in imagined)
    return list(run_episodes(env, replay, seeds, max_steps=longest, kind="rollout"))


def summarise(lines: Sequence[dict[str, Any]], task: str, arm: str) -> dict[str, Any]:
    """Return ``rows``, the ``confusion`` with counts, and ``notes`` on what could not be measured."""
    found = confusion([line["imagined"] for line in lines], [line["real"] for line in lines])
    claims = found.true_positive + found.false_positive
    rows, notes = [], []
    if claims:
        interval = wilson(found.false_positive, claims)
        rows.append(EvalRow(task, arm, "false_success/imagined", interval.value, interval.low, interval.high, interval.n))
    else:
        notes.append(f"{task}: no imagined episode was judged a success, so there is no false-success rate")
    if found.true_negative + found.false_negative == 0:
        notes.append(f"{task}: only claimed successes were stored, so recall in imagination was not measured")
    return {"rows": [vars(row) for row in rows], "confusion": vars(found), "notes": notes}


def _line(index: int, episode: Episode, rollout: Rollout) -> dict[str, Any]:
    held = rollout.success_steps[1 : len(episode) + 1]
    return {
        "index": index,
        "seed": episode.source.seed,
        "imagined": int(episode.success == 1.0),
        "real": int(held.any() and not rollout.success_steps[0]),
        "steps": len(episode),
        "held": held.astype(int).tolist(),
    }


def _film(folder: Path, line: dict[str, Any], episode: Episode, rollout: Rollout, wanted: int) -> None:
    """Keep some claimed successes as videos, imagined beside simulated."""
    if not line["imagined"]:
        return
    kind = "true" if line["real"] else "false"
    path = folder / f"{kind}_success_{line['index']:06d}.mp4"
    if len(list(folder.glob(f"{kind}_success_*.mp4"))) < wanted and not path.is_file():
        rows = len(episode) + 1
        simulated = {f"simulated {camera}": frames[:rows] for camera, frames in rollout.episode.frames.items() if camera in episode.frames}
        write_video(path, {**episode.frames, **simulated}, episode.fps)
