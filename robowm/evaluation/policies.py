"""Success of a policy from fixed start states: each start once, the same ones for every policy.

``output_dir`` holds ``episodes.jsonl``, one line per start,

    {task, arm, train_seed, seed, success, success_at_end, success_at_reset, steps, seconds, measures}

``evaluation.json`` (rows with intervals, notes), ``videos/{failure,success}_<seed>.mp4`` and, when finished, ``artefact.json``.

* ``success``: the goal held after some step. A start at which it already held counts as ``success_at_reset`` and never as a success, so
  that a policy which does nothing scores 0.
* ``success_at_end``: the goal still held when the episode ended, ``stop_after_success`` steps after its first success. Without that margin
  "at end" would equal "once"; None runs every episode to ``max_steps``, the strictest form, at a higher price.
* ``steps``: steps to the first success, ``max_steps`` where there was none.
* ``measures``: {name: number}, what was asked for beside; missing where nothing was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robowm.artefacts import claim, fingerprint_json, write_artefact, write_json
from robowm.errors import UserError
from robowm.evaluation.video import write_video
from robowm.jsonl import append_lines, recover_lines
from robowm.metrics.stats import SMALL_SAMPLE, Outcomes, outcome_row
from robowm.progress import Progress
from robowm.protocols import Env, Policy
from robowm.rollout import Rollout, described, run_episodes
from robowm.seeds import check_seeds
from robowm.types import Episode, EvalRow

EPISODES = "episodes.jsonl"
SUMMARY = "evaluation.json"
VIDEOS = "videos"
METRICS = ("success", "success_at_end", "success_at_reset")


def run(
    *,
    env: Env,
    policy: Policy,
    arm: str,
    output_dir: Path | str,
    episodes: int,
    max_steps: int,
    first_seed: int = 100_000,
    purpose: str = "evaluation",
    train_seed: int = 0,
    stop_after_success: int | None = 10,
    failure_videos: int = 4,
    success_videos: int = 2,
    noise_salt: int = 0,
    measures: Mapping[str, Callable[[Episode], float]] | None = None,
) -> dict[str, Any]:
    """Evaluate ``policy`` as ``arm`` on starts ``first_seed .. first_seed + episodes - 1`` and return the summary.

    ``measures`` are further numbers of each episode, by name, such as robowm.metrics.recoveries.Recoveries.
    Killed and called again it goes on after the last finished batch. ``env.n`` may differ then: outcomes do not depend on it.
    """
    output_dir = Path(output_dir)
    seeds = range(first_seed, first_seed + episodes)
    if episodes < 1:
        raise UserError(f"an evaluation needs at least one episode, found episodes={episodes}")
    check_seeds(purpose, seeds)
    labels = {"task": env.task_name, "arm": arm, "train_seed": train_seed}
    settings = {"max_steps": max_steps, "stop_after_success": stop_after_success, "noise_salt": noise_salt}
    config = {**labels, "env": described(env, policy), "first_seed": first_seed, "episodes": episodes, **settings}
    config |= {"measures": {name: str(measure) for name, measure in measures.items()}} if measures else {}
    inputs = {"policy": policy.name}
    if claim(output_dir, kind="evaluation", inputs=inputs, config=config) is not None:
        return json.loads((output_dir / SUMMARY).read_text())
    videos = _Videos(output_dir / VIDEOS, {"failure": failure_videos, "success": success_videos})
    log = output_dir / EPISODES
    done = _recover(log, seeds)
    with Progress(output_dir, episodes, f"evaluate {arm}", done=len(done)) as progress:
        left = [seed for seed in seeds if seed not in done]
        for first in range(0, len(left), env.n):
            batch = left[first : first + env.n]
            began = time.perf_counter()
            rollouts = list(run_episodes(env, policy, batch, kind="rollout", **settings))
            seconds = (time.perf_counter() - began) / len(batch)
            lines = [{**labels, **outcome(rollout, max_steps), "seconds": round(seconds, 4)} for rollout in rollouts]
            if measures:
                told = [{name: measure(rollout.episode) for name, measure in measures.items()} for rollout in rollouts]
                lines = [{**line, "measures": numbers} for line, numbers in zip(lines, told, strict=True)]
            for line, rollout in zip(lines, rollouts, strict=True):
                videos.offer(line, rollout)
            append_lines(log, lines)
            progress.advance(len(batch))
    summary = summarise([log])
    write_json(output_dir / SUMMARY, summary)
    fingerprint, ends = fingerprint_json({"inputs": inputs, "config": config}), [seeds[0], seeds[-1]]
    write_artefact(output_dir, kind="evaluation", fingerprint=fingerprint, inputs=inputs, config=config, seeds=ends, **summary)
    return summary


def outcome(rollout: Rollout, max_steps: int) -> dict[str, Any]:
    """Return one start's verdicts (see the module's docstring) and its number of steps."""
    at_reset, after = bool(rollout.success_steps[0]), rollout.success_steps[1:]
    success = bool(after.any()) and not at_reset
    return {
        "seed": rollout.episode.source.seed,
        "success": int(success),
        "success_at_end": int(success and bool(after[-1])),
        "success_at_reset": int(at_reset),
        "steps": int(after.argmax()) + 1 if success else max_steps,
    }


def read_episodes(logs: Sequence[Path | str]) -> list[dict[str, Any]]:
    """Return the lines of several ``episodes.jsonl`` files (or folders that hold one)."""
    lines = []
    for log in map(Path, logs):
        file = log / EPISODES if log.is_dir() else log
        if not file.is_file():
            raise UserError(f"{file} does not exist; run the evaluation that writes it")
        lines += [json.loads(line) for line in file.read_text().splitlines()]
    return lines


def outcomes(lines: Sequence[dict[str, Any]], task: str, arm: str, metric: str) -> Outcomes:
    """Return {training seed: {start seed: value}} of one arm, refusing a start that was evaluated twice."""
    found: dict[int, dict[int, float]] = {}
    for line in lines:
        if (line["task"], line["arm"]) == (task, arm):
            starts = found.setdefault(line["train_seed"], {})
            if line["seed"] in starts:
                raise UserError(f"{task}, {arm}: start {line['seed']} of training seed {line['train_seed']} was evaluated twice")
            starts[line["seed"]] = float(line[metric])
    if not found:
        raise UserError(f"no episodes of {arm} on {task}; found {sorted({(x['task'], x['arm']) for x in lines})}")
    return found


def summarise(logs: Sequence[Path | str]) -> dict[str, Any]:
    """Return ``rows`` (EvalRow as JSON) of every task and arm in ``logs``, ``starts_per_second`` and ``notes``."""
    lines = read_episodes(logs)
    rows: list[EvalRow] = []
    notes = []
    for task, arm in dict.fromkeys((line["task"], line["arm"]) for line in lines):
        rows += [outcome_row(task, arm, metric, outcomes(lines, task, arm, metric)) for metric in METRICS]
        row = rows[-len(METRICS)]
        if row.n < SMALL_SAMPLE:
            notes.append(f"{task}, {arm}: small sample, n = {row.n}; the interval {row.low:.2f} to {row.high:.2f} is all that is known")
        if at_reset := round(rows[-1].value * rows[-1].n):
            notes.append(f"{task}, {arm}: the goal held at reset in {at_reset} of {row.n} starts; they count as failures of every policy")
    seconds = sum(line["seconds"] for line in lines)
    return {"rows": [vars(row) for row in rows], "starts_per_second": round(len(lines) / max(seconds, 1e-9), 3), "notes": notes}


class _Videos:
    """Keeps the first few failures and successes (in the order of starts) as videos."""

    def __init__(self, folder: Path, wanted: dict[str, int]):
        self._folder = folder
        self._left = {kind: count - len(list(folder.glob(f"{kind}_*.mp4"))) for kind, count in wanted.items()}

    def offer(self, line: dict[str, Any], rollout: Rollout) -> None:
        kind = "success" if line["success"] else "failure"
        path = self._folder / f"{kind}_{line['seed']}.mp4"
        if self._left[kind] > 0 and rollout.episode.frames and not path.is_file():
            write_video(path, rollout.episode.frames, rollout.episode.fps)
            self._left[kind] -= 1


def _recover(log: Path, seeds: Sequence[int]) -> set[int]:
    """Return the starts that are done."""
    done = [line["seed"] for line in recover_lines(log)]
    if len(set(done)) != len(done) or not set(done) <= set(seeds):
        raise UserError(f"{log} holds repeated starts or starts that were not asked for; delete the folder and evaluate again")
    return set(done)
