"""How faithful a world model is when it runs free: one real start observation, recorded actions, no truth after that.

Three arms on the same held-out episodes, in the pictures that are recorded (uint8):

* ``world_model``: the model under the episode's own actions;
* ``copy_last``: the start frame for ever, what a model without dynamics would show;
* ``shuffled_actions``: the model under another episode's actions. A model that ignores actions scores as well as with the right ones.
* ``zero_actions`` (on request): the model told to stand still: zeros where actions are differences, else the first action held.

A store with masks adds ``psnr_object`` and ``psnr_gripper``, means over the frames that truly show object or gripper; an episode without
such a frame lacks them and is no part of the row.

``output_dir`` holds ``episodes.jsonl`` (a line per episode and arm: each metric's mean and at most six points of its curve),
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
from typing import Any, Protocol

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
KNOWN_CONTROLS = (*CONTROLS, "zero_actions")
WINDOW = 4  # frames that "@k" averages: k-3 .. k
POINTS = 6  # of a curve, from the first window to the last; every window of every episode would be most of a study's size
NOISE_SALT = 11
EXPERT = "expert"  # the action set that is not part of the task's name


class Measure(Protocol):
    """Something else to measure of an arm's pictures, episode by episode."""

    name: str  # with all that its numbers depend on

    def __call__(
        self, shown: Mapping[str, np.ndarray], scores: Mapping[str, np.ndarray], group: Sequence[Episode]
    ) -> list[dict[str, float]]:
        """Return {metric: value} of each of N episodes; one that lacks a metric does not count in its row.

        ``shown`` {camera: uint8 [N, L + 1, h, w, 3]}, row 0 real; ``scores`` {"psnr/<camera>": f64 [N, L]}.
        """
        ...


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
    measures: Sequence[Measure] = (),
    names: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Evaluate ``world_model`` on the held-out ``stores`` ({action set: path}) and return rows and pairs.

    The first ``episodes`` episodes of each store that have at least ``horizon`` steps are used (None: all). ``arm`` names the model in the
    results; where several models see the same episodes, one of them brings the ``controls`` and the others none, or theirs under other
    ``names`` ({control: name}).
    """
    output_dir = Path(output_dir)
    check(controls, horizon)
    opened = {name: EpisodeStore.open(path) for name, path in stores.items()}
    inputs = {"world_model": world_model.name, **{name: store.fingerprint() for name, store in opened.items()}}
    config = {"task": task, "arm": arm, "controls": list(controls), "horizon": horizon, "episodes": episodes, "train_seed": train_seed}
    config |= {
        "batch": batch,
        **({"names": dict(names)} if names else {}),
        **({"measures": [measure.name for measure in measures]} if measures else {}),
    }
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return json.loads((output_dir / SUMMARY).read_text())
    chosen = {name: long_enough(store, horizon, episodes, name) for name, store in opened.items()}
    lines: list[dict[str, Any]] = []
    with Progress(output_dir, sum(map(len, chosen.values())), "evaluate world model") as progress:
        for name, store in opened.items():
            label = task_of(task, name)
            kept = 0
            for numbers in batches(chosen[name], batch):
                group = [store.episode(int(i)) for i in numbers]
                predicted = predict_group(world_model, group, horizon, arm, controls, store.spec.action_kind)
                predicted = {(names or {}).get(shown, shown): frames for shown, frames in predicted.items()}
                truth = {camera: np.stack([e.frames[camera][: horizon + 1] for e in group]) for camera in predicted[arm]}
                masks = masks_of(group, predicted[arm], horizon)
                lines += _score(predicted, truth, masks, group, {"task": label, "train_seed": train_seed}, measures)
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


def curve_points(length: int) -> list[int]:
    """Return the last frames k of the windows that a curve over ``length`` frames shows, e.g. 4, 16, 28, 36, 48, 60."""
    windows = length // WINDOW
    return [WINDOW * int(i) for i in np.linspace(1, windows, min(POINTS, windows)).round()]


def task_of(task: str, action_set: str) -> str:
    """Return the task's name in the results: with the action set, unless that is the expert's."""
    return task if action_set == EXPERT else f"{task}:{action_set}"


def check(controls: Sequence[str], horizon: int) -> None:
    """Raise UserError for a control that does not exist or a horizon that is no whole number of windows."""
    if unknown := [name for name in controls if name not in KNOWN_CONTROLS]:
        raise UserError(f"no control is named {unknown[0]!r}; {nearest(unknown[0], KNOWN_CONTROLS)}")
    if horizon % WINDOW or horizon < WINDOW:
        raise UserError(f"horizon={horizon}; it must be a positive multiple of {WINDOW}")


def predict_group(
    world_model: WorldModel,
    group: Sequence[Episode],
    horizon: int,
    arm: str = "world_model",
    controls: Sequence[str] = CONTROLS,
    action_kind: str = "absolute",
) -> dict[str, dict[str, np.ndarray]]:
    """Return {arm or control: {camera: uint8 [N, horizon + 1, h, w, 3]}}; row 0 is the real start."""
    actions = np.stack([episode.action[:horizon] for episode in group])
    first = {camera: np.stack([e.frames[camera][:1] for e in group]) for camera in group[0].frames}
    obs = Obs(first, np.stack([e.state[:1] for e in group]), None, tuple(e.task for e in group))
    seeds = [e.source.seed for e in group]
    made = {
        "copy_last": lambda: {camera: np.repeat(rows, horizon + 1, 1) for camera, rows in first.items()},
        "shuffled_actions": lambda: free_run(world_model, obs, np.roll(actions, 1, 0), seeds),
        "zero_actions": lambda: free_run(world_model, obs, still(actions, action_kind), seeds),
    }
    return {arm: free_run(world_model, obs, actions, seeds), **{name: made[name]() for name in controls}}


def still(actions: np.ndarray, action_kind: str) -> np.ndarray:
    """Return actions f32 [N, L, A] that ask for no motion: zeros where actions are differences ("delta"), else the first one held."""
    return np.zeros_like(actions) if action_kind == "delta" else np.repeat(actions[:, :1], actions.shape[1], 1)


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
        for metric in dict.fromkeys(metric for line in lines if line["task"] == task for metric in line["values"]):
            found = {arm: values for arm in arms if (values := outcomes(lines, task, arm, metric))}
            rows += [asdict(outcome_row(task, arm, metric, values)) for arm, values in found.items()]
            if not metric.rpartition("@")[2].isdigit() and model in found:
                others = [arm for arm in found if arm != model]
                pairs += [asdict(outcome_pair(task, model, arm, metric, found[model], found[arm])) for arm in others]
    return {"rows": rows, "pairs": pairs}


def outcomes(lines: Sequence[Mapping[str, Any]], task: str, arm: str, metric: str) -> Outcomes:
    """Return {training seed: {start seed: value}} of one arm and metric, of the episodes that have it."""
    found: dict[int, dict[int, float]] = {}
    for line in lines:
        if (line["task"], line["arm"]) == (task, arm) and metric in line["values"]:
            found.setdefault(line["train_seed"], {})[line["seed"]] = line["values"][metric]
    return found


def masks_of(group: Sequence[Episode], cameras: Iterable[str], horizon: int) -> dict[str, np.ndarray]:
    """Return the recorded masks {camera: uint8 [N, horizon, h, w, 3]} of rows 1 .. horizon of those ``cameras`` that have one."""
    masked = [camera for camera in cameras if camera + MASK in group[0].frames]
    return {camera: np.stack([e.frames[camera + MASK][1 : horizon + 1] for e in group]) for camera in masked}


def _score(predicted, truth, masks, group: Sequence[Episode], labels: dict[str, Any], measures: Sequence[Measure]) -> list[dict[str, Any]]:
    lines = []
    for arm in predicted:
        values: list[dict[str, float]] = [{} for _ in group]
        found: dict[str, np.ndarray] = {}  # f64 [N, L]
        for camera, rows in truth.items():
            scores = fidelity(torch.from_numpy(predicted[arm][camera][:, 1:]), torch.from_numpy(rows[:, 1:]))
            for metric, per_frame in scores.items():
                found[f"{metric}/{camera}"] = per_frame.numpy().astype(float)
                for value, curve in zip(values, found[f"{metric}/{camera}"], strict=True):
                    value[f"{metric}/{camera}@mean"] = round(float(curve.mean()), 5)
                    for k in curve_points(len(curve)):
                        value[f"{metric}/{camera}@{k}"] = round(float(curve[k - WINDOW : k].mean()), 5)
            for metric in FOREGROUND if camera in masks else ():
                pair = (torch.from_numpy(side[:, 1:]) for side in (predicted[arm][camera], rows))
                means = foreground_psnr(metric, *pair, torch.from_numpy(masks[camera])).nanmean(1)
                for value, mean in zip(values, means.tolist(), strict=True):
                    value |= {} if math.isnan(mean) else {f"{metric}/{camera}@mean": round(mean, 5)}
        for measure in measures:
            for value, more in zip(values, measure(predicted[arm], found, group), strict=True):
                value |= {metric: round(float(number), 5) for metric, number in more.items()}
        lines += [{**labels, "arm": arm, "seed": e.source.seed, "values": value} for e, value in zip(group, values, strict=True)]
    return lines


def long_enough(store: EpisodeStore, horizon: int, episodes: int | None, name: str) -> np.ndarray:
    """Return the numbers int [E] of the first ``episodes`` (None: all) of at least ``horizon`` steps; fewer than two are refused."""
    found = np.flatnonzero(store.lengths >= horizon)[:episodes]
    if len(found) < 2:
        raise UserError(
            f"{store.path} ({name}) has {len(found)} episodes of at least horizon={horizon} steps; lengths are "
            f"{min(store.lengths, default=0)} to {max(store.lengths, default=0)}. Record longer ones (stop_after_success=null) "
            f"or lower horizon"
        )
    return found


def batches(numbers: np.ndarray, size: int) -> Iterator[np.ndarray]:
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
