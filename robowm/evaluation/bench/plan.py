"""What a comparison consists of, and everything about a request that can be refused before work begins."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from robowm.data.store import EpisodeStore
from robowm.errors import UserError, nearest
from robowm.evaluation.bench.regimes import Regimes
from robowm.evaluation.world_models import KNOWN_CONTROLS, long_enough
from robowm.protocols import Env

COUNTERFACTUAL, REAL = "counterfactual", "real_frames"  # a store that the bench records, and the arm of recorded frames
MODEL_NAME, STORE_NAME = re.compile(r"[A-Za-z0-9_.+\-]+"), re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class Arm:
    """One model at one temperature."""

    name: str
    model: str
    path: str | Path
    temperature: float


def arms_of(world_models: Mapping[str, str | Path], temperatures: Sequence[float]) -> list[Arm]:
    """Return the arms, all models at the first temperature, then at the next; names say the temperature where there are several."""
    if not world_models:
        raise UserError("world_models names none; give world_models='{base: runs/world_model, ...}'")
    for name in world_models:
        if not MODEL_NAME.fullmatch(name) or name in (*KNOWN_CONTROLS, REAL):
            raise UserError(f"world_models: {name!r} cannot name an arm; use letters, digits and _ . + -, but no control's name")
    if not temperatures or len(set(temperatures)) != len(temperatures) or min(temperatures) < 0:
        raise UserError(f"temperatures={list(temperatures)}; give one or several different ones, none below 0")
    several = len(temperatures) > 1
    return [
        Arm(f"{name}@t{temperature:g}" if several else name, name, path, float(temperature))
        for temperature in temperatures
        for name, path in world_models.items()
    ]


def pairs_of(world_models: Mapping[str, str | Path], pairs: Sequence[Mapping[str, str]] | None) -> list[dict[str, str]]:
    """Return the pairs of models to compare, by default each with the first."""
    first, *others = world_models
    wanted = [{"a": name, "b": first} for name in others] if pairs is None else [dict(pair) for pair in pairs]
    for pair in wanted:
        if set(pair) != {"a", "b"} or pair["a"] == pair["b"]:
            raise UserError(f"pairs holds {pair}; each names two different models as {{a: ..., b: ...}}")
        for name in pair.values():
            if name not in world_models:
                raise UserError(f"pairs names {name!r}, which is not among world_models; {nearest(name, world_models)}")
    return wanted


def matched(arms: Sequence[Arm], pairs: Sequence[Mapping[str, str]]) -> Iterator[tuple[Arm, Arm]]:
    """Yield the arms of each pair of models at each temperature that both were sampled at."""
    for pair in pairs:
        for a in (arm for arm in arms if arm.model == pair["a"]):
            yield a, next(arm for arm in arms if (arm.model, arm.temperature) == (pair["b"], a.temperature))


def shared_cameras(cameras: Mapping[str, Mapping[str, tuple[int, int]]]) -> list[str]:
    """Return the cameras that all models show, in the order of the first; at least one."""
    first, *others = cameras.values()
    shared = [name for name, size in first.items() if all(other.get(name) == size for other in others)]
    if not shared:
        shown = "; ".join(f"{model}: {', '.join(f'{c} {h}x{w}' for c, (h, w) in views.items())}" for model, views in cameras.items())
        raise UserError(f"the world models have no camera of one size in common ({shown}); compare models of the same cameras")
    return shared


def drawn_cameras(env: Env | None, counterfactual: int | None) -> list[str] | None:
    """Return the cameras of the counterfactual episodes that a bench records in ``env``; None where it records none."""
    if counterfactual and env is None:
        raise UserError(f"counterfactual={counterfactual} executes actions in the simulator; give env=... or set counterfactual=null")
    return None if env is None or counterfactual == 0 else list(env.spec()["cameras"])


def check_stores(
    stores: Mapping[str, EpisodeStore],
    trained: Mapping[str, EpisodeStore],
    horizon: int,
    episodes: int | None,
    regimes: Regimes | None,
    drawn: Sequence[str] | None = None,
) -> None:
    """Refuse stores whose names, lengths, starts or contents cannot be used, and held-out stores that something trains on.

    ``drawn`` are the cameras of the episodes that the bench will record from the starts of the first store; None: it records none.
    """
    if not stores:
        raise UserError("stores names none; give stores='{expert: data/held_out, ...}'")
    for name, store in stores.items():
        if not STORE_NAME.fullmatch(name) or name == COUNTERFACTUAL:
            raise UserError(f"stores: {name!r} cannot name an action set; use small letters, digits and _, but not {COUNTERFACTUAL!r}")
        numbers = long_enough(store, horizon, episodes, name)
        seed, times = Counter(store.meta(int(i)).source.seed for i in numbers).most_common(1)[0]
        if times > 1:
            raise UserError(
                f"{store.path} ({name}) holds {times} episodes of start seed {seed}; episodes are paired by it, keep one of each"
            )
        for key, other in trained.items():
            if other.fingerprint() == store.fingerprint():
                raise UserError(f"{key} ({other.path}) is the held-out store {name!r} as well; train the reader of actions on others")
        if regimes is not None:
            episode = store.episode(int(numbers[0]))
            regimes(episode)
            if drawn is not None and name == next(iter(stores)):
                try:
                    regimes(replace(episode, frames={camera: episode.frames[camera] for camera in drawn if camera in episode.frames}))
                except UserError as error:
                    raise UserError(f"the counterfactual episodes that this bench records in its env: {error}") from error
