"""Recorded episodes: demonstrations of a scripted expert, rollouts of any policy. ``output_dir`` becomes an EpisodeStore.

Episodes are stored in the order of their start seeds, so an interrupted collection goes on with the seed after the last stored one. A start
that was tried and dropped at the very end is tried again; its outcome is the same, since it depends on seed and policy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from robowm.artefacts import claim
from robowm.data.sidecar import write_sidecar
from robowm.data.spec import CONTROLLER
from robowm.data.store import EpisodeStore, StoreSpec
from robowm.errors import UserError
from robowm.progress import Progress
from robowm.protocols import Env, Policy, Tells
from robowm.rollout import Rollout, check_amount, described, run_episodes
from robowm.seeds import SEED_RANGES, check_seeds
from robowm.types import Controller

UNITS = {"episodes": "tried", "until_successes": "successes", "until_human_steps": "human_steps"}  # what each amount counts
PEOPLE = (Controller.DEMO, Controller.HUMAN_RECOVERY, Controller.HUMAN_CORRECTION)
TOLD = "told"  # sidecar, and folder of its parts


def run(
    *,
    env: Env,
    policy: Policy,
    output_dir: Path | str,
    purpose: str,
    max_steps: int,
    episodes: int | None = None,
    until_successes: int | None = None,
    until_human_steps: int | None = None,
    keep_failures: bool = True,
    first_seed: int | None = None,
    max_tries: int | None = None,
    stop_after_success: int | None = 10,
    noise_salt: int = 0,
    round: int = 0,
) -> dict[str, Any]:
    """Run ``policy`` from seeds ``first_seed, first_seed + 1, ...`` (default: the first of ``purpose``) and store what happened.

    Exactly one of ``episodes`` (starts tried), ``until_successes`` (successes stored) and ``until_human_steps`` (steps of people stored,
    the last episode is stored whole) says when to stop; ``max_tries`` starts at most (default: all seeds of the purpose), then an error if
    some are still missing. ``keep_failures=False`` stores successes alone. ``env`` needs ``spec() -> dict`` with the fields of StoreSpec.
    Purpose ``demonstrations`` is stored as kind demo, anything else as rollout, or as the kind that a policy ``Tells``; what that told of
    each step becomes the sidecar "told". Returns the counts {tried, stored, successes, dropped}, and {human_steps} where people act.
    """
    output_dir = Path(output_dir)
    asked_for = check_amount(episodes=episodes, until_successes=until_successes, until_human_steps=until_human_steps)
    target, unit = asked_for[0], UNITS[asked_for[1]]
    check_seeds(purpose, [])
    first_seed = start(first_seed, purpose)
    check_seeds(purpose, [first_seed] if episodes is None else range(first_seed, first_seed + episodes))
    stop = min(first_seed + (episodes or max_tries or len(SEED_RANGES[purpose])), SEED_RANGES[purpose].stop)
    spec = StoreSpec(**env.spec())
    settings = {"max_steps": max_steps, "stop_after_success": stop_after_success, "noise_salt": noise_salt, "round": round}
    asked = {"until_successes": until_successes, "keep_failures": keep_failures}
    asked |= {} if until_human_steps is None else {"until_human_steps": until_human_steps}
    where = {"task": env.task_name, "env": described(env, policy), "spec": spec.to_json()}
    config = {**where, "purpose": purpose, "first_seed": first_seed, "stop": stop, **asked, **settings}
    inputs = {"policy": policy.name}
    if (finished := claim(output_dir, kind="store", inputs=inputs, config=config)) is not None:
        return finished["counts"]
    store = EpisodeStore.open_or_create(output_dir, spec)
    helped = unit == "human_steps" or (isinstance(policy, Tells) and policy.kind == "human")
    counts = _count(store, first_seed, helped)
    roll = partial(run_episodes, env, policy, **_origin(policy, purpose), **settings)
    with Progress(output_dir, target, f"collect {purpose}", done=counts[unit]) as progress:
        while counts[unit] < target and (seed := first_seed + counts["tried"]) < stop:
            before = counts[unit]
            for rollout in roll(range(seed, min(seed + env.n, stop))):
                counts = _stored(store, rollout, counts, keep_failures)
                if counts[unit] >= target:
                    break
            progress.advance(min(counts[unit], target) - before, success=counts["successes"] / counts["tried"])
    if counts[unit] < target:
        reached = f"{policy.name} reached {counts[unit]} of {target} {unit.replace('_', ' ')} in {counts['tried']} tries"
        raise UserError(f"{reached} on {env.task_name}; raise max_tries, ask for fewer, or use a better policy")
    if isinstance(policy, Tells):
        _join_told(store, inputs)
    store.seal(inputs=inputs, config=config, counts=counts, seeds=[first_seed, first_seed + counts["tried"] - 1])
    return counts


def start(first_seed: int | None, purpose: str) -> int:
    """Return ``first_seed``, or the first start of ``purpose``."""
    return SEED_RANGES[purpose].start if first_seed is None else first_seed


def _origin(policy: Policy, purpose: str) -> dict[str, Any]:
    """Return the kind of episodes, and who is in control where that is not told step by step."""
    if purpose == "demonstrations":
        return {"kind": "demo", "controller": Controller.DEMO}
    return {"kind": policy.kind if isinstance(policy, Tells) else "rollout"}


def _count(store: EpisodeStore, first_seed: int, helped: bool) -> dict[str, int]:
    """Return what was tried and stored so far, with ``helped`` also how many steps of people were."""
    metas = store.metas
    tried = metas[-1].source.seed + 1 - first_seed if metas else 0
    successes = sum(meta.success == 1.0 for meta in metas)
    counts = {"tried": tried, "stored": len(metas), "successes": successes, "dropped": tried - len(metas)}
    return counts | ({"human_steps": sum(_of_people(store.rows(i, CONTROLLER)) for i in range(len(metas)))} if helped else {})


def _of_people(controller: np.ndarray) -> int:
    """Return how many steps people demonstrated or took over."""
    return int(np.isin(controller, PEOPLE).sum())


def _stored(store: EpisodeStore, rollout: Rollout, counts: dict[str, int], keep_failures: bool) -> dict[str, int]:
    """Store the episode if it is wanted and return the counts after it."""
    success = rollout.episode.success == 1.0 and not rollout.success_steps[0]
    stored = keep_failures or success
    if stored:
        if rollout.told:
            _keep_told(store, rollout.told)
        store.append(rollout.episode)
    change = {"tried": 1, "stored": int(stored), "successes": int(success), "dropped": int(not stored)}
    change["human_steps"] = _of_people(rollout.episode.controller) if stored else 0
    return {name: counts[name] + change[name] for name in counts}


def _keep_told(store: EpisodeStore, told: Mapping[str, np.ndarray]) -> None:
    """Write what was told of the episode that is stored next; a kill in between leaves a file that the next try writes again."""
    path = store.path / TOLD / f"{len(store)}.safetensors"
    path.parent.mkdir(exist_ok=True)
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in told.items()}, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; free some space and run again, it resumes") from error


def _join_told(store: EpisodeStore, inputs: Mapping[str, str]) -> None:
    """Make one sidecar of the episodes' files."""
    parts = [load_file(store.path / TOLD / f"{i}.safetensors") for i in range(len(store))]
    if parts:
        write_sidecar(store, TOLD, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, inputs=inputs)
