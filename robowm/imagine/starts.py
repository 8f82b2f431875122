"""Real first observations for imagined episodes, by start seed. Never those of evaluation starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robowm.data.store import EpisodeStore, StoreSpec
from robowm.errors import UserError
from robowm.protocols import Env
from robowm.rollout import described
from robowm.seeds import check_seeds, purpose_of
from robowm.types import Obs

OPEN_PURPOSES = ("demonstrations", "rollouts")  # what a policy may train on


class EnvStarts:
    """Starts from a simulator that is reset and never stepped: as many different ones as there are rollout seeds."""

    def __init__(self, env: Env, *, first_seed: int = 30_000, count: int = 10_000):
        """``env`` needs ``spec()``; seeds ``first_seed .. first_seed + count - 1`` must be rollout seeds."""
        self.seeds: Sequence[int] = range(first_seed, first_seed + count)
        check_seeds("rollouts", self.seeds)
        self._env = env
        self.spec = without_truth(StoreSpec(**env.spec()))
        self.task_name = env.task_name
        self.name = f"resets of {env.task_name} {described(env)}"

    def __call__(self, seeds: Sequence[int]) -> Obs:
        """Return the observations (K = 1) after a reset from each seed, without simulator truth."""
        check_seeds("rollouts", sorted(set(seeds)))
        n = self._env.n
        return join([self._env.reset(list(seeds[i : i + n])) for i in range(0, len(seeds), n)])


class StoreStarts:
    """Starts from the first rows of recorded episodes: no simulator needed, as on a robot."""

    def __init__(self, path: Path | str, *, task_name: str):
        """``path``: an EpisodeStore whose episodes began from different demonstration or rollout seeds."""
        self._store = EpisodeStore.open(path)
        if len(self._store) == 0:
            raise UserError(f"{path} holds no episodes; record some or name another store")
        self._index = {meta.source.seed: i for i, meta in enumerate(self._store.metas)}
        closed = [seed for seed in self._index if purpose_of(seed) not in OPEN_PURPOSES]
        if closed:
            raise UserError(f"{path} has {len(closed)} starts that may not be trained on, first {closed[0]} ({purpose_of(closed[0])})")
        self.seeds: Sequence[int] = sorted(self._index)
        self.spec = without_truth(self._store.spec)
        self.task_name = task_name
        self.name = self._store.fingerprint()

    def __call__(self, seeds: Sequence[int]) -> Obs:
        """Return the first observation (K = 1) of the episode of each seed, without simulator truth."""
        if missing := [seed for seed in seeds if seed not in self._index]:
            raise UserError(f"{self._store.path} has no episode from start {missing[0]}; it has {len(self._index)} starts")
        found = [self._index[seed] for seed in seeds]
        frames = {c: np.stack([self._store.rows(i, f"observation.images.{c}", 0, 1) for i in found]) for c in self.spec.cameras}
        state = np.stack([self._store.rows(i, "observation.state", 0, 1) for i in found])
        return Obs(frames, state, None, tuple(self._store.meta(i).task for i in found))


def without_truth(spec: StoreSpec) -> StoreSpec:
    """Return ``spec`` as imagined episodes have it: nobody knows the simulator state there, or what a pixel shows."""
    return dataclasses.replace(spec, environment_state_names=None, cameras=spec.pictures())


def join(parts: Sequence[Obs]) -> Obs:
    """Return observations of all environments in ``parts``, without simulator truth."""
    frames = {camera: np.concatenate([part.frames[camera] for part in parts]) for camera in parts[0].frames}
    return Obs(frames, np.concatenate([part.state for part in parts]), None, tuple(task for part in parts for task in part.task))
