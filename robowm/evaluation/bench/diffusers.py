"""``suite=diffusers``: our world model beside what one writes with diffusers alone (peer.py), in one run on the same machine.

Both have as many parameters, see the same clips, and train from scratch for as long: ``seconds`` at the speed that each is found to have at
the start, as updates written to ``plan.json``, so that a run that was cut off goes on with the same ones. Then both roll the same episodes
under the same actions, turn by turn. ``ratio/rollout`` is our frames per second over the peer's; fidelity stands beside it.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robowm.artefacts import claim, write_json, write_text
from robowm.data.shares import StoreShare, open_shares
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.evaluation import world_models as fidelity
from robowm.evaluation.bench.peer import PeerLoss, count, matched
from robowm.evaluation.bench.world_model import EPISODES, KIND, SUMMARY, compare, seal
from robowm.jsonl import recover_lines
from robowm.metrics.stats import bootstrap_mean
from robowm.protocols import WorldModel
from robowm.train.distributed import Precision, pick_device, to_device
from robowm.train.learner import Learner, derive_seed, fit
from robowm.train.optim import OptimConfig
from robowm.types import EvalRow, Obs
from robowm.world_model.losses import TeacherForcing
from robowm.world_model.model import Design
from robowm.world_model.predict import LoadedWorldModel
from robowm.world_model.train import prepare

OURS, PEER = "robowm", "diffusers"
PLAN = "plan.json"


@dataclass(frozen=True)
class Timing:
    """How speeds are measured."""

    updates: int = 30  # of each learner, to learn how many fit into the training time
    episodes: int = 32  # rolled side by side
    frames: int = 60  # of a roll
    turns: int = 10  # rolls of each model, one after the other in turn


def run(
    *,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    held_out: Mapping[str, Path | str],
    task: str,
    world_model: Design | Mapping[str, Any],
    loss: TeacherForcing,
    output_dir: Path | str,
    seconds: float,
    batch_size: int,
    optim: OptimConfig,
    timing: Timing,
    horizon: int = 60,
    episodes: int | None = None,
    seed: int = 0,
    runs_on: str = "auto",
    precision: Precision = "auto",
    log_every: int = 50,
    save_every: int = 500,
) -> dict[str, Any]:
    """Train both on ``stores`` for ``seconds`` each, measure both on ``held_out`` ({action set: path}) and return rows, pairs and notes."""
    output_dir = Path(output_dir)
    design = world_model if isinstance(world_model, Design) else Design(**world_model)
    shares, _, inputs = open_shares(stores)
    opened = {name: EpisodeStore.open(path) for name, path in held_out.items()}
    check_held_out(opened, horizon, episodes, timing)
    inputs |= {f"held_out.{name}": store.fingerprint() for name, store in opened.items()}
    config = {"task": task, "world_model": vars(design), "loss": asdict(loss), "stores": [share.settings() for share in shares]}
    config |= {"seconds": seconds, "batch_size": batch_size, "optim": asdict(optim), "timing": asdict(timing)}
    config |= {"horizon": horizon, "episodes": episodes, "seed": seed}
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return json.loads((output_dir / SUMMARY).read_text())
    torch.manual_seed(derive_seed(seed))
    sampler, ours = prepare(shares, design, batch_size, seed, loss)
    peer = matched(ours)
    learners = {OURS: Learner(ours, sampler.batch, loss), PEER: Learner(peer, sampler.batch, PeerLoss(loss.pure_noise))}
    steps = plan(output_dir / PLAN, learners, optim, seconds, timing.updates, pick_device(runs_on))
    where = {"device": runs_on, "precision": precision, "log_every": log_every, "save_every": save_every}
    trained = {
        name: fit(learner, steps=steps[name], optim=optim, seed=seed, output_dir=output_dir / name, label=f"train {name}", **where)
        for name, learner in learners.items()
    }
    peer = trained[PEER].to(pick_device(runs_on)).eval()
    models = {OURS: LoadedWorldModel(OURS, trained[OURS].to(pick_device(runs_on)).eval(), infer_width=timing.episodes), PEER: peer}
    summary = _faithful(models, opened, task, output_dir, horizon, episodes, seed)
    speeds = turns(models, next(iter(opened.values())), timing)
    summary["rows"] += [asdict(row) for row in speed_rows(task, speeds)]
    sizes = ", ".join(f"{name} {count(learner.model):,} parameters, {steps[name]} updates" for name, learner in learners.items())
    summary["notes"] = [
        f"{sizes}; {design.sampling_steps} sampling steps; {timing.turns} rolls of {timing.episodes} x {timing.frames} frames"
    ]
    seal(output_dir, summary, inputs, config)
    return summary


def plan(path: Path, learners: Mapping[str, Learner], optim: OptimConfig, seconds: float, updates: int, device: torch.device):
    """Return {name: how many updates the learner makes in ``seconds``}, measured on copies, turn by turn; kept in ``path``."""
    if path.is_file():
        return json.loads(path.read_text())
    spent = dict.fromkeys(learners, 0.0)
    working = {name: copy.deepcopy(learner.model).to(device) for name, learner in learners.items()}
    optimisers = {name: torch.optim.AdamW(model.parameters(), optim.lr) for name, model in working.items()}
    for step in range(updates + 1):
        for name, learner in learners.items():
            began = time.perf_counter()
            value, _ = learner.loss(working[name], to_device(learner.batch(step), device), torch.Generator(device).manual_seed(step))
            optimisers[name].zero_grad()
            value.backward()
            optimisers[name].step()
            value.item()  # waits for the device
            spent[name] += (time.perf_counter() - began) * (step > 0)  # the first one also allocates
    steps = {name: max(1, round(seconds * updates / spent[name])) for name in learners}
    write_json(path, steps)
    return steps


def check_held_out(opened: Mapping[str, EpisodeStore], horizon: int, episodes: int | None, timing: Timing) -> None:
    """Raise UserError where no held-out store is given, or one has too few episodes as long as what is measured after the training."""
    if not opened:
        raise UserError("held_out names none; give held_out='{expert: data/held_out, ...}'")
    fidelity.check([], horizon)
    for name, store in opened.items():
        fidelity.long_enough(store, horizon, episodes, name)
    timed(next(iter(opened.values())), timing)


def timed(store: EpisodeStore, timing: Timing) -> list[int]:
    """Return the numbers of the episodes to be rolled against the clock, at most ``timing.episodes``; raise UserError if there is none."""
    numbers = [i for i in range(len(store)) if store.lengths[i] >= timing.frames][: timing.episodes]
    if not numbers:
        raise UserError(
            f"{store.path} has no episode of timing.frames={timing.frames} steps, the longest has {max(store.lengths, default=0)}; record "
            "longer ones or lower it"
        )
    return numbers


def turns(models: Mapping[str, WorldModel], store: EpisodeStore, timing: Timing) -> dict[str, np.ndarray]:
    """Return frames per second f64 [turns] of each model, rolling the same episodes in turn."""
    numbers = timed(store, timing)
    group = [store.episode(numbers[i % len(numbers)]) for i in range(timing.episodes)]
    obs = Obs(
        {camera: np.stack([e.frames[camera][:1] for e in group]) for camera in group[0].frames},
        np.stack([e.state[:1] for e in group]),
        None,
        tuple(e.task for e in group),
    )
    actions, seeds = np.stack([e.action[: timing.frames] for e in group]), range(timing.episodes)
    found: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(timing.turns + 1):
        for name, model in models.items():
            began = time.perf_counter()
            fidelity.free_run(model, obs, actions, seeds)
            if turn:  # the first turn warms up
                found[name].append(timing.episodes * timing.frames / (time.perf_counter() - began))
    return {name: np.array(values) for name, values in found.items()}


def speed_rows(task: str, speeds: Mapping[str, np.ndarray]) -> list[EvalRow]:
    """Return frames per second of both, and ours over the peer's turn by turn, with intervals over turns."""
    measured = {(name, "fps/rollout"): values for name, values in speeds.items()}
    measured[PEER, "ratio/rollout"] = speeds[OURS] / speeds[PEER]
    rows = []
    for (arm, metric), values in measured.items():
        interval = bootstrap_mean(values, seed=0)
        rows.append(EvalRow(task, arm, metric, interval.value, interval.low, interval.high, interval.n))
    return rows


def _faithful(models, opened: Mapping[str, EpisodeStore], task: str, output_dir: Path, horizon: int, episodes: int | None, seed: int):
    """Measure both on the same held-out episodes and return rows and pairs."""
    summary: dict[str, list[Any]] = {"rows": [], "pairs": []}
    lines = []
    for name, model in models.items():
        folder = output_dir / "units" / name
        stores = {action_set: store.path for action_set, store in opened.items()}
        shape = {"task": task, "horizon": horizon, "episodes": episodes, "train_seed": seed}
        found = fidelity.run(
            world_model=model, stores=stores, output_dir=folder, arm=name, controls=[] if name == PEER else ["copy_last"], **shape
        )
        summary["rows"] += found["rows"]
        summary["pairs"] += found["pairs"]
        lines += recover_lines(folder / EPISODES)
    summary["pairs"] += compare(lines, [(OURS, PEER)])
    write_text(output_dir / EPISODES, "".join(json.dumps(line) + "\n" for line in lines))
    return summary
