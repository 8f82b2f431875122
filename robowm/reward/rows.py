"""Balanced batches of labelled observation rows for the success classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robowm.data.clips import first_rows
from robowm.data.sampler import ClipReader
from robowm.data.shares import as_entries
from robowm.data.sidecar import read_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.types import ClipBatch

NEAR = 12  # steps around a change of label: the negatives there look most like successes
NEAR_SHARE = 0.5  # of the negatives in a batch


@dataclass(frozen=True)
class LabelledStore:
    """A store whose steps say whether the goal held after them: its rewards, or ``labels``, a sidecar with the array 'success' [steps].

    Imagined episodes carry no rewards, so they need labels (evaluation/imagined_vs_real.py writes them).
    """

    path: str | Path
    labels: str | None = None


class RowSampler:
    """``batch(step)`` holds as many rows where the goal holds as rows where it does not, a pure function of (seed, step)."""

    def __init__(self, stores: Sequence[LabelledStore], *, cameras: Sequence[str], rows: int, batch_size: int, seed: int):
        """Read the stores; ``rows`` is the number of observation rows that the classifier looks at."""
        opened = [EpisodeStore.open(store.path, cameras=cameras) for store in stores]
        self.reader = ClipReader(opened, cameras)
        self._batch_size, self._seed = batch_size, seed
        self._offsets = list(range(2 - rows, 2))  # the row after the step, and those before it
        self.truth = np.concatenate(
            [goal_held(store, source.labels) for store, source in zip(opened, stores, strict=True)]
        )  # bool [sum(T)]
        self._episode = np.repeat(np.arange(len(self.reader)), self.reader.lengths)
        self._step = np.arange(len(self.truth)) - first_rows(self.reader.lengths)[self._episode]
        self._positive, self._negative = np.flatnonzero(self.truth), np.flatnonzero(~self.truth)
        self._near = np.flatnonzero(~self.truth & near_change(self.truth, self._episode, NEAR))
        if len(self._positive) == 0 or len(self._negative) == 0:
            raise UserError(
                f"{[str(store.path) for store in stores]}: the goal holds in {len(self._positive)} of {len(self.truth)} steps; "
                "a success classifier needs successes and failures, add rollouts that have both"
            )

    def batch(self, step: int) -> ClipBatch:
        """Return ``batch_size`` clips whose ``reward`` [B, 1] is the label."""
        numbers = self.draw(step)
        clips = self.reader.read(self._episode[numbers], self._step[numbers], self._offsets, [0])
        labels = clips.reward.new_tensor(self.truth[numbers])[:, None]
        return ClipBatch(**{**vars(clips), "reward": labels})

    def draw(self, step: int) -> np.ndarray:
        """Return the flat step numbers int64 [B] of batch ``step``, positives first."""
        rng = np.random.default_rng([self._seed, step])
        positives = self._batch_size // 2
        near = int((self._batch_size - positives) * NEAR_SHARE) if len(self._near) else 0
        parts = [(self._positive, positives), (self._near, near), (self._negative, self._batch_size - positives - near)]
        return np.concatenate([rng.choice(pool, count) for pool, count in parts if count])


def goal_held(store: EpisodeStore, labels: str | None = None) -> np.ndarray:
    """Return bool [steps of the store]: the goal held after each step."""
    if labels is not None:
        arrays = read_sidecar(store, labels)
        if "success" not in arrays:
            raise UserError(f"sidecar {labels!r} of {store.path} has no 'success'; it has {', '.join(arrays)}")
        return arrays["success"] > 0.5
    if imagined := sum(meta.source.kind == "imagined" for meta in store.metas):
        raise UserError(f"{store.path} holds {imagined} imagined episodes, whose rewards nobody gave; name a sidecar with labels")
    return np.concatenate([store.rows(i, "next.reward") for i in range(len(store))] or [np.zeros(0)]) > 0.5


def near_change(truth: np.ndarray, episode: np.ndarray, reach: int) -> np.ndarray:
    """Return bool [M]: a step of the same episode, at most ``reach`` steps away, has the other label. ``episode`` int [M] is sorted."""
    near = np.zeros(len(truth), bool)
    for distance in range(1, reach + 1):
        differs = (truth[distance:] != truth[:-distance]) & (episode[distance:] == episode[:-distance])
        near[distance:] |= differs
        near[:-distance] |= differs
    return near


def as_labelled(stores: Sequence[LabelledStore | Mapping | str | Path]) -> list[LabelledStore]:
    """Accept paths, mappings and LabelledStores alike."""
    if not stores:
        raise UserError("no store given; name at least one")
    return as_entries(LabelledStore, stores)
