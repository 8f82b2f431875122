"""How faithful a world model is when it runs free: one real start observation, recorded actions, no truth after that.

Three arms on the same held-out episodes, in the pictures that are recorded (uint8):

* ``world_model``: the model under the episode's own actions;
* ``copy_last``: the start frame for ever, what a model without dynamics would show;
* ``shuffled_actions``: the model under another episode's actions. A model that ignores actions scores as well as with the right ones.

A store with masks adds ``psnr_object`` and ``psnr_gripper``, means over the frames that truly show object or gripper; an episode without
such a frame has null there and is no part of the row.

``output_dir`` holds ``episodes.jsonl`` (a line per episode and arm: each metric's mean and its curve in steps of four frames),
``world_model.json`` (rows and paired differences with intervals over episodes), ``strips/*.npz`` (truth and prediction) and
``artefact.json``. Action sets other than the expert's are part of the task's name ("tabletop/pick_place:open_loop"): an expert's actions
point at the object and leak its state, open-loop ones do not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robowm.artefacts import claim, fingerprint_json, write_artefact, write_json, write_text
from robowm.data.store import EpisodeStore
from robowm.errors import UserError, nearest
from robowm.metrics.fidelity import FOREGROUND, fidelity, foreground_psnr
from robowm.metrics.stats import Outcomes, outcome_pair, outcome_row
from robowm.progress import Progress
from robowm.protocols import WorldModel
from robowm.types import MASK, Episode, Obs

KIND = "world_model_evaluation"
EPISODES, SUMMARY, STRIPS = "episodes.jsonl", "world_model.json", "strips"
CONTROLS = ("copy_last", "shuffled_actions")
WINDOW = 4  # frames that "@k" averages: k-3 .. k
NOISE_SALT = 11
EXPERT = "expert"  # the action set that is not part of the task's name


def run(
    *,
    world_model: WorldModel,
    stores: Mapping[str, Path | str],
    task: str,
    output_dir: Path | str,
    arm: str = "world_model",
    controls: Sequence[str] = CONTROLS,
    horizon: int = 60,
    episodes: int | None = None,
    batch: int = 32,
    train_seed: int = 0,
    strips: int = 3,
) -> dict[str, Any]:
    """Evaluate ``world_model`` on the held-out ``stores`` ({action set: path}) and return rows and pairs.

    The first ``episodes`` episodes of each store that have at least ``horizon`` steps are used (None: all). ``arm`` names the model in the
    results; where several models see the same episodes, one of them brings the ``controls`` and the others none.
    """
    output_dir = Path(output_dir)
    if unknown := [name for name in controls if name not in CONTROLS]:
        raise UserError(f"no control is named {unknown[0]!r}; {nearest(unknown[0], CONTROLS)}")
    if horizon % WINDOW or horizon < WINDOW:
        raise UserError(f"horizon={horizon}; it must be a positive multiple of {WINDOW}")
    opened = {name: EpisodeStore.open(path) for name, path in stores.items()}
    inputs = {"world_model": world_model.name, **{name: store.fingerprint() for name, store in opened.items()}}
    config = {"task": task, "arm": arm, "controls": list(controls), "horizon": horizon, "episodes": episodes, "train_seed": train_seed}
    config |= {"batch": batch}
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return json.loads((output_dir / SUMMARY).read_text())
    chosen = {name: _long_enough(store, horizon, episodes, name) for name, store in opened.items()}
    lines: list[dict[str, Any]] = []
    with Progress(output_dir, sum(map(len, chosen.values())), "evaluate world model") as progress:
        for name, store in opened.items():
            label = task if name == EXPERT else f"{task}:{name}"
            kept = 0
            for numbers in _batches(chosen[name], batch):
                group = [store.episode(int(i)) for i in numbers]
                predicted = predict_group(world_model, group, horizon, arm, controls)
                truth = {camera: np.stack([e.frames[camera][: horizon + 1] for e in group]) for camera in predicted[arm]}
                lines += _score(predicted, truth, masks_of(group, predicted[arm], horizon), group, label, train_seed)
                for i in range(min(strips - kept, len(group))):
                    shown = predicted[arm]
                    _write_strip(output_dir / STRIPS / f"{name}_{kept}.npz", label, i, truth, shown, world_model.chunk, group[i].fps)
                    kept += 1
                progress.advance(len(group))
    write_text(output_dir / EPISODES, "".join(json.dumps(line) + "\n" for line in lines))
    summary = summarise(lines, arm)
    write_json(output_dir / SUMMARY, summary)
    fingerprint = fingerprint_json({"inputs": inputs, "config": config})
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint, inputs=inputs, config=config, **summary)
    return summary


def predict_group(
    world_model: WorldModel, group: Sequence[Episode], horizon: int, arm: str = "world_model", controls: Sequence[str] = CONTROLS
) -> dict[str, dict[str, np.ndarray]]:
    """Return {arm or control: {camera: uint8 [N, horizon + 1, h, w, 3]}}; row 0 is the real start."""
    actions = np.stack([episode.action[:horizon] for episode in group])
    first = {camera: np.stack([e.frames[camera][:1] for e in group]) for camera in group[0].frames}
    obs = Obs(first, np.stack([e.state[:1] for e in group]), None, tuple(e.task for e in group))
    seeds = [e.source.seed for e in group]
    made = {
        "copy_last": lambda: {camera: np.repeat(rows, horizon + 1, 1) for camera, rows in first.items()},
        "shuffled_actions": lambda: free_run(world_model, obs, np.roll(actions, 1, 0), seeds),
    }
    return {arm: free_run(world_model, obs, actions, seeds), **{name: made[name]() for name in controls}}


def free_run(world_model: WorldModel, obs: Obs, actions: np.ndarray, seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """Roll from ``obs`` (K = 1) under ``actions`` f32 [N, L, A] and return {camera: uint8 [N, L + 1, h, w, 3]}."""
    length, chunk = actions.shape[1], world_model.chunk
    actions = np.concatenate([actions, np.repeat(actions[:, -1:], -length % chunk, 1)], 1)
    rngs = [np.random.default_rng([NOISE_SALT, int(seed)]) for seed in seeds]
    memory, shown = world_model.start(obs), [obs]
    for begin in range(0, actions.shape[1], chunk):
        rows, memory = world_model.predict(memory, actions[:, begin : begin + chunk], rngs)
        shown.append(rows)
    return {camera: np.concatenate([rows.frames[camera] for rows in shown], 1)[:, : length + 1] for camera in shown[-1].frames}


def summarise(lines: Sequence[Mapping[str, Any]], model: str = "world_model") -> dict[str, Any]:
    """Return ``rows`` (EvalRow) of every task, arm and metric, and ``pairs`` of the arm ``model`` with the others on each mean."""
    rows, pairs = [], []
    for task in dict.fromkeys(line["task"] for line in lines):
        arms = list(dict.fromkeys(line["arm"] for line in lines if line["task"] == task))
        for metric in next(line["values"] for line in lines if line["task"] == task):
            found = {arm: outcomes(lines, task, arm, metric) for arm in arms}
            if not any(found.values()):
                continue  # no episode shows what it looks at
            rows += [asdict(outcome_row(task, arm, metric, found[arm])) for arm in arms]
            if metric.endswith("@mean"):
                others = [arm for arm in arms if arm != model]
                pairs += [asdict(outcome_pair(task, model, arm, metric, found[model], found[arm])) for arm in others]
    return {"rows": rows, "pairs": pairs}


def outcomes(lines: Sequence[Mapping[str, Any]], task: str, arm: str, metric: str) -> Outcomes:
    """Return {training seed: {start seed: value}} of one arm and metric, without episodes where it has no value."""
    found: dict[int, dict[int, float]] = {}
    for line in lines:
        if (line["task"], line["arm"]) == (task, arm) and line["values"][metric] is not None:
            found.setdefault(line["train_seed"], {})[line["seed"]] = line["values"][metric]
    return found


def masks_of(group: Sequence[Episode], cameras: Iterable[str], horizon: int) -> dict[str, np.ndarray]:
    """Return the recorded masks {camera: uint8 [N, horizon, h, w, 3]} of rows 1 .. horizon of those ``cameras`` that have one."""
    masked = [camera for camera in cameras if camera + MASK in group[0].frames]
    return {camera: np.stack([e.frames[camera + MASK][1 : horizon + 1] for e in group]) for camera in masked}


def _score(predicted, truth, masks, group: Sequence[Episode], task: str, train_seed: int) -> list[dict[str, Any]]:
    lines = []
    for arm in predicted:
        values: list[dict[str, float | None]] = [{} for _ in group]
        for camera, rows in truth.items():
            scores = fidelity(torch.from_numpy(predicted[arm][camera][:, 1:]), torch.from_numpy(rows[:, 1:]))
            for metric, per_frame in scores.items():
                for value, curve in zip(values, per_frame.numpy().astype(float), strict=True):
                    value[f"{metric}/{camera}@mean"] = round(float(curve.mean()), 5)
                    for k in range(WINDOW, len(curve) + 1, WINDOW):
                        value[f"{metric}/{camera}@{k}"] = round(float(curve[k - WINDOW : k].mean()), 5)
            for metric in FOREGROUND if camera in masks else ():
                pair = (torch.from_numpy(side[:, 1:]) for side in (predicted[arm][camera], rows))
                means = foreground_psnr(metric, *pair, torch.from_numpy(masks[camera])).nanmean(1)
                for value, mean in zip(values, means.tolist(), strict=True):
                    value[f"{metric}/{camera}@mean"] = None if math.isnan(mean) else round(mean, 5)
        labels = {"task": task, "arm": arm, "train_seed": train_seed}
        lines += [{**labels, "seed": e.source.seed, "values": value} for e, value in zip(group, values, strict=True)]
    return lines


def _long_enough(store: EpisodeStore, horizon: int, episodes: int | None, name: str) -> np.ndarray:
    found = np.flatnonzero(store.lengths >= horizon)[:episodes]
    if len(found) < 2:
        raise UserError(
            f"{store.path} ({name}) has {len(found)} episodes of at least horizon={horizon} steps; lengths are "
            f"{min(store.lengths, default=0)} to {max(store.lengths, default=0)}. Record longer ones (stop_after_success=null) "
            f"or lower horizon"
        )
    return found


def _batches(numbers: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Split into batches of at most ``size``, none of a single episode: its shuffled actions would be its own."""
    count = max(1, -(-len(numbers) // max(size, 2)))
    yield from np.array_split(numbers, count)


def _write_strip(path: Path, task: str, i: int, truth, predicted, chunk: int, fps: float) -> None:
    """Keep one episode's truth and prediction: ``truth/<camera>``, ``predicted/<camera>`` uint8 [L + 1, h, w, 3], chunk, fps, task."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"truth/{camera}": rows[i] for camera, rows in truth.items()}
    arrays |= {f"predicted/{camera}": predicted[camera][i] for camera in truth}
    try:
        np.savez_compressed(path, chunk=chunk, fps=fps, task=np.array(task), **arrays)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; free some space and run again") from error
