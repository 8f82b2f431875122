"""``suite=world_model``: several world models on any stores and cameras, against each other, against controls and against real frames.

Each model runs free from one real frame on every store (robowm/evaluation/world_models.py), at each sampling temperature. Where asked for:
reading its actions (inverse.py), frames per regime (regimes.py), counterfactual actions executed in the simulator (counterfactual.py) and a
long roll (long_roll.py). An arm is a model's name, with ``@t0.4`` behind it where there are several temperatures.

Controls of the first arm have their plain names, as in a study where one model brings them; those of the others stand behind the arm's
("rl:shuffled_actions"). ``shuffled_actions`` are those of the next episode of a batch, so "another episode's actions" would be the same
control twice; ``copy_last`` does not depend on the model and stands once.

Each (arm, store) is a finished folder of its own under ``output_dir/units``, so a run that was cut off goes on with the next.
``bench.json`` holds rows, pairs and notes, ``episodes.jsonl`` a line per episode and arm; ``robowm report flywheel=<output_dir>`` makes a
results file and a page of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from robowm.artefacts import claim, fingerprint_json, write_artefact, write_json, write_text
from robowm.data.store import EpisodeStore
from robowm.evaluation import world_models as fidelity
from robowm.evaluation.bench.counterfactual import record_counterfactuals
from robowm.evaluation.bench.inverse import ActionError, InverseDynamics, InverseNet, train_reader
from robowm.evaluation.bench.long_roll import LongRoll, run_long_roll
from robowm.evaluation.bench.plan import COUNTERFACTUAL, REAL, Arm, arms_of, check_stores, drawn_cameras, matched, pairs_of, shared_cameras
from robowm.evaluation.bench.regimes import Regimes, RegimeScores, name_of
from robowm.jsonl import recover_lines
from robowm.metrics.stats import outcome_pair
from robowm.progress import Progress
from robowm.protocols import Env, WorldModel

KIND = "bench"
EPISODES, SUMMARY = fidelity.EPISODES, "bench.json"
Load = Callable[..., WorldModel]  # (path, *, temperature, infer_width = its own) -> model
Unit = tuple[Path, Callable[[], Mapping[str, Any]]]  # folder, what fills it (or finds it finished) and returns rows, pairs, notes
INVERSE, LONG_ROLL = InverseDynamics(), LongRoll()


@dataclass(frozen=True)
class Settings:
    """What all units have in common."""

    task: str
    controls: Sequence[str]
    horizon: int
    episodes: int | None
    batch: int
    train_seed: int
    strips: int


def run(
    *,
    world_models: Mapping[str, Path | str],
    stores: Mapping[str, Path | str],
    task: str,
    output_dir: Path | str,
    load: Load,
    pairs: Sequence[Mapping[str, str]] | None = None,
    controls: Sequence[str] = fidelity.KNOWN_CONTROLS,
    temperatures: Sequence[float] = (1.0,),
    horizon: int = 60,
    episodes: int | None = None,
    batch: int = 32,
    train_seed: int = 0,
    strips: int = 2,
    regimes: Regimes | None = None,
    train_stores: Sequence[Mapping[str, Any]] = (),
    inverse: InverseDynamics = INVERSE,
    env: Env | None = None,
    counterfactual: int | None = None,
    long_roll: LongRoll = LONG_ROLL,
) -> dict[str, Any]:
    """Compare ``world_models`` ({name: folder}) on the held-out ``stores`` ({action set: path}) and return rows, pairs and notes.

    ``pairs`` ({a, b} of model names, written down before the run) are compared at each temperature; None: each model with the first.
    ``train_stores`` (fields of StoreShare) train the reader of actions; none: no ``action_error``. ``counterfactual`` episodes of the first
    store run in ``env`` under others' actions; None: as many as ``episodes`` where there is an ``env``; 0: none.
    """
    output_dir = Path(output_dir)
    fidelity.check(controls, horizon)
    arms, compared = arms_of(world_models, temperatures), pairs_of(world_models, pairs)
    opened = {name: EpisodeStore.open(path) for name, path in stores.items()}
    trained = {f"train_stores.{i}": EpisodeStore.open(share["path"]) for i, share in enumerate(train_stores)}
    drawn = drawn_cameras(env, counterfactual)
    check_stores(opened, trained, horizon, episodes, regimes, drawn)
    models = {arm.model: load(arm.path, temperature=arm.temperature) for arm in arms if arm.temperature == temperatures[0]}
    cameras = shared_cameras({name: model.cameras for name, model in models.items()})
    inputs = {f"world_models.{name}": model.name for name, model in models.items()}
    inputs |= {name: store.fingerprint() for name, store in {**{f"stores.{name}": s for name, s in opened.items()}, **trained}.items()}
    del models
    settings = Settings(task, list(controls), horizon, episodes, batch, train_seed, strips)
    config = {**asdict(settings), "pairs": compared, "temperatures": list(temperatures), "long_roll": asdict(long_roll)}
    config |= {"regimes": regimes and name_of(regimes), "inverse": inverse.shape() if trained else None}
    config |= {"counterfactual": counterfactual, "env": env and env.task_name}
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return json.loads((output_dir / SUMMARY).read_text())
    reader = train_reader(inverse, train_stores, cameras, output_dir / "inverse_dynamics") if trained else None
    first, held_out = next(iter(opened)), dict(opened)
    if drawn is not None:
        numbers = fidelity.long_enough(opened[first], horizon, counterfactual or episodes, first)
        held_out[COUNTERFACTUAL] = record_counterfactuals(env, opened[first], numbers, horizon, output_dir / COUNTERFACTUAL)
    units = _units(output_dir / "units", arms, held_out, lru_cache(maxsize=1)(load), settings, regimes, reader)
    rolls = _long_rolls(output_dir / "long_rolls", arms, first, opened[first], load, settings, long_roll)
    wanted = [(a.name, b.name) for a, b in matched(arms, compared)]
    wanted += [(arm.name, "copy_last") for arm in arms[1:]] + [(arm.name, REAL) for arm in arms]
    summary = _perform(output_dir, units, rolls, wanted)
    summary["notes"] = [*_notes(arms, reader, held_out, regimes, rolls), *summary["notes"]]
    seal(output_dir, summary, inputs, config)
    return summary


def seal(output_dir: Path, summary: Mapping[str, Any], inputs: Mapping[str, str], config: Mapping[str, Any]) -> None:
    """Write what was found and make ``output_dir`` a finished bench."""
    write_json(output_dir / SUMMARY, summary)
    fingerprint = fingerprint_json({"inputs": inputs, "config": config})
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint, inputs=inputs, config=config)


def _units(
    folder: Path,
    arms: Sequence[Arm],
    stores: Mapping[str, EpisodeStore],
    load: Load,
    settings: Settings,
    regimes: Regimes | None,
    reader: tuple[str, InverseNet] | None,
) -> list[Unit]:
    """Return what is to be done for each arm and store, then for the real frames of each store."""
    units: list[Unit] = []
    masked = [] if regimes is None else [RegimeScores(regimes)]
    reads = {} if reader is None else {name: ActionError(*reader, f"action_error/{name}") for name in stores}
    for arm in arms:
        for name, store in stores.items():
            measures = [*masked, *([reads[name]] if reads else [])]
            controls = [control for control in settings.controls if arm is arms[0] or control != "copy_last"]
            names = {} if arm is arms[0] else {control: f"{arm.name}:{control}" for control in controls}
            evaluate = partial(_evaluate, arm, name, store, load, settings, controls, names, measures, folder / arm.name / name)
            units.append((folder / arm.name / name, evaluate))
    for name, read in reads.items():
        units.append((folder / REAL / name, partial(_read_real, name, stores[name], read, settings, folder / REAL / name)))
    return units


def _evaluate(arm: Arm, name: str, store: EpisodeStore, load: Load, settings: Settings, controls, names, measures, folder: Path):
    return fidelity.run(
        world_model=load(arm.path, temperature=arm.temperature),
        stores={name: store.path},
        task=settings.task,
        output_dir=folder,
        arm=arm.name,
        controls=controls,
        horizon=settings.horizon,
        episodes=settings.episodes,
        batch=settings.batch,
        train_seed=settings.train_seed,
        strips=settings.strips,
        measures=measures,
        names=names,
    )


def _read_real(name: str, store: EpisodeStore, read: ActionError, settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure the floor of the action error: the same reader on the episodes' own frames."""
    inputs = {"reader": read.name, "store": store.fingerprint()}
    config = asdict(settings)
    if claim(folder, kind=REAL, inputs=inputs, config=config) is not None:
        return fidelity.summarise(recover_lines(folder / EPISODES), REAL)
    labels = {"task": fidelity.task_of(settings.task, name), "arm": REAL, "train_seed": settings.train_seed}
    lines: list[dict[str, Any]] = []
    for numbers in fidelity.batches(fidelity.long_enough(store, settings.horizon, settings.episodes, name), settings.batch):
        group = [store.episode(int(i), cameras=read.net.cameras) for i in numbers]
        shown = {camera: np.stack([e.frames[camera][: settings.horizon + 1] for e in group]) for camera in read.net.cameras}
        lines += [{**labels, "seed": e.source.seed, "values": value} for e, value in zip(group, read(shown, {}, group), strict=True)]
    write_text(folder / EPISODES, "".join(json.dumps(line) + "\n" for line in lines))
    write_artefact(folder, kind=REAL, fingerprint=fingerprint_json({"inputs": inputs, "config": config}), inputs=inputs, config=config)
    return fidelity.summarise(lines, REAL)


def _long_rolls(
    folder: Path, arms: Sequence[Arm], name: str, store: EpisodeStore, load: Load, settings: Settings, long_roll: LongRoll
) -> list[Unit]:
    """Return one long roll for each arm, from the first episodes of a store."""
    if not long_roll.frames:
        return []
    numbers = fidelity.long_enough(store, settings.horizon, settings.episodes, name)[: long_roll.episodes]
    task = fidelity.task_of(settings.task, name)

    def perform(arm: Arm) -> dict[str, Any]:
        model = load(arm.path, temperature=arm.temperature, infer_width=len(numbers))
        labels = {"task": task, "arm": arm.name, "train_seed": settings.train_seed}
        return run_long_roll(model, store, numbers, long_roll, labels, folder / arm.name)

    return [(folder / arm.name, partial(perform, arm)) for arm in arms]


def _perform(output_dir: Path, units: Sequence[Unit], rolls: Sequence[Unit], wanted: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Do all units, finished ones at no cost, and return rows, pairs and notes; a line per episode and arm goes to ``episodes.jsonl``."""
    summary: dict[str, list[Any]] = {"rows": [], "pairs": [], "notes": []}
    lines: list[dict[str, Any]] = []
    with Progress(output_dir, len(units) + len(rolls), "bench") as progress:
        for _, perform in [*units, *rolls]:
            found = perform()
            for part, entries in summary.items():
                entries += found.get(part, [])
            progress.advance()
    for folder, _ in units:
        lines += recover_lines(folder / EPISODES)
    summary["pairs"] += compare(lines, wanted)
    for folder, _ in rolls:
        lines += recover_lines(folder / EPISODES)
    write_text(output_dir / EPISODES, "".join(json.dumps(line) + "\n" for line in lines))
    return summary


def compare(lines: Sequence[Mapping[str, Any]], wanted: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return paired differences of the ``wanted`` arms on every task and all that both have a measure of, single frames left out."""
    found = []
    for task in dict.fromkeys(line["task"] for line in lines):
        here = [line for line in lines if line["task"] == task]
        metrics = [m for m in dict.fromkeys(m for line in here for m in line["values"]) if not m.rpartition("@")[2].isdigit()]
        for a, b in wanted:
            for metric in metrics:
                sides = [fidelity.outcomes(here, task, arm, metric) for arm in (a, b)]
                if all(sides):
                    found.append(asdict(outcome_pair(task, a, b, metric, *sides)))
    return found


def _notes(
    arms: Sequence[Arm],
    reader: tuple[str, InverseNet] | None,
    stores: Mapping[str, EpisodeStore],
    regimes: Regimes | None,
    rolls: Sequence[Unit],
) -> list[str]:
    """Return what a reader of the numbers must know, and what was not asked for."""
    notes = [f"Controls without a model's name are those of {arms[0].name}."] if len(arms) > 1 else []
    given = {"action errors (train_stores)": reader, "regimes": regimes, "long rolls (long_roll.frames)": rolls or None}
    given["counterfactual actions (env)"] = stores.get(COUNTERFACTUAL)
    missing = [name for name, value in given.items() if value is None]
    return notes + ([f"Not measured, since not asked for: {', '.join(missing)}."] if missing else [])
