"""Clips as tensors: ``ClipReader`` gathers any clips, ``ClipSampler`` draws batches of them as a pure function of (seed, step)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch

from robowm.data import clips
from robowm.data.shares import StoreShare, as_shares
from robowm.data.sidecar import read_sidecar
from robowm.data.spec import ACTION, CONTROLLER, ENVIRONMENT_STATE, IMAGE, REWARD, STATE, EpisodeMeta
from robowm.data.store import EpisodeStore
from robowm.errors import UserError, nearest
from robowm.types import ClipBatch, ClipRef

MEMORY_BUDGET = 4 << 30  # bytes of frames that are kept in memory; larger sets are read from disk clip by clip


class ClipReader:
    """Gathers clips from one or several stores that agree on cameras, state and action.

    Episodes are numbered 0 .. E-1 over all stores in order, kept ones alone. Everything but frames lies in memory, as flat arrays over all
    episodes; frames do too if they fit into ``budget`` bytes.
    """

    def __init__(
        self,
        stores: Sequence[EpisodeStore],
        cameras: Sequence[str],
        *,
        episodes: Sequence[np.ndarray | None] | None = None,
        weights: Sequence[str | None] | None = None,
        early_weights: Sequence[str | None] | None = None,
        budget: int = MEMORY_BUDGET,
    ):
        """``episodes`` gives per store the indices to keep (None: all), ``weights`` the sidecar with per-step loss weights (None: ones),
        ``early_weights`` another one to read clips with (None: the same)."""
        self.stores, self.cameras = list(stores), list(cameras)
        _check_alike(self.stores, self.cameras)
        kept = [np.arange(len(store)) if e is None else np.asarray(e, np.int64) for store, e in _zip(self.stores, episodes)]
        self.store_of = np.repeat(np.arange(len(kept)), [len(k) for k in kept])  # [E] store of each episode
        self.index = np.concatenate(kept).astype(np.int64)  # [E] episode's index within its store
        self.metas = [self.stores[s].meta(i) for s, i in zip(self.store_of, self.index, strict=True)]
        self.lengths = np.array([meta.length for meta in self.metas], np.int64)  # [E]
        self.success = np.array([meta.success for meta in self.metas], np.float32)  # [E]
        self._first_obs, self._first_step = clips.first_rows(self.lengths + 1), clips.first_rows(self.lengths)
        self.state = self._flat(STATE, self.lengths + 1)  # f32 [sum(T+1), S]
        self.action = self._flat(ACTION, self.lengths)  # f32 [sum(T), A]
        self.reward = self._flat(REWARD, self.lengths)  # f32 [sum(T)]
        self.controller = self._flat(CONTROLLER, self.lengths).astype(np.int64)  # [sum(T)]
        truth = all(store.spec.environment_state_names is not None for store in self.stores)
        self.environment_state = self._flat(ENVIRONMENT_STATE, self.lengths + 1) if truth else None
        names = [None] * len(self.stores) if weights is None else list(weights)
        early = names if early_weights is None else [e or w for e, w in zip(early_weights, names, strict=True)]
        ones = np.ones(int(self.lengths.sum()), np.float32)
        self.weight = self._sidecars(names, "weight", ones)  # f32 [sum(T)]
        self.early_weight = self.weight if early == names else self._sidecars(early, "weight", ones)  # f32 [sum(T)]
        known = [name is not None and "improved" in read_sidecar(store, name) for store, name in zip(self.stores, names, strict=True)]
        said = [name if has else None for name, has in zip(names, known, strict=True)]
        self.improved = self._sidecars(said, "improved", -np.ones(len(ones), np.int64)) if any(known) else None  # int64 [sum(T)]
        rows = int((self.lengths + 1).sum())
        size = sum(rows * 3 * h * w for h, w in (self.stores[0].spec.cameras[c] for c in self.cameras))
        self.in_memory = size <= budget
        self._frames = {c: self._flat(IMAGE + c, self.lengths + 1) for c in self.cameras} if self.in_memory else {}

    def __len__(self) -> int:
        return len(self.index)

    def read(
        self, episodes: np.ndarray, anchors: np.ndarray, obs_offsets: Sequence[int], action_offsets: Sequence[int], *, early: bool = False
    ) -> ClipBatch:
        """Return the clips at ``anchors`` int [B] of ``episodes`` int [B] as CPU tensors (see data/clips.py for offsets), weighed as they
        are to be ``early`` in training or later."""
        episodes, anchors = np.asarray(episodes, np.int64), np.asarray(anchors, np.int64)
        obs, obs_valid = clips.window(self.lengths + 1, episodes, anchors, np.asarray(obs_offsets))
        act, act_valid = clips.window(self.lengths, episodes, anchors, np.asarray(action_offsets))
        flat_obs = obs + self._first_obs[episodes][:, None]
        flat_act = act + self._first_step[episodes][:, None]
        frames = {c: self.frames(c, episodes, obs) for c in self.cameras}
        truth = None if self.environment_state is None else torch.from_numpy(_take(self.environment_state, flat_obs))
        return ClipBatch(
            frames={c: torch.from_numpy(f) for c, f in frames.items()},
            state=torch.from_numpy(_take(self.state, flat_obs)),
            environment_state=truth,
            obs_valid=torch.from_numpy(obs_valid),
            action=torch.from_numpy(_take(self.action, flat_act)),
            reward=torch.from_numpy(_take(self.reward, flat_act)),
            controller=torch.from_numpy(_take(self.controller, flat_act)),
            action_valid=torch.from_numpy(act_valid),
            weight=torch.from_numpy(_take(self.early_weight if early else self.weight, flat_act)),
            success=torch.from_numpy(self.success[episodes]),
            task=tuple(self.metas[e].task for e in episodes),
            refs=self._refs(episodes, anchors, action_offsets),
            improved=self._improved(episodes, anchors),
        )

    def weighs(self, episodes: np.ndarray, anchors: np.ndarray, action_offsets: Sequence[int]) -> np.ndarray:
        """Return bool [B]: whether any action of the clip weighs something, early or later."""
        act, valid = clips.window(self.lengths, episodes, anchors, np.asarray(action_offsets))
        flat = act + self._first_step[episodes][:, None]
        return (valid & ((_take(self.weight, flat) > 0) | (_take(self.early_weight, flat) > 0))).any(1)

    def _improved(self, episodes: np.ndarray, anchors: np.ndarray) -> torch.Tensor | None:
        if self.improved is None:
            return None
        return torch.from_numpy(_take(self.improved, self._first_step[episodes] + np.minimum(anchors, self.lengths[episodes] - 1)))

    def frames(self, camera: str, episodes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return uint8 [B, K, h, w, 3]: observation rows int64 [B, K] of ``episodes`` int64 [B]."""
        if self.in_memory:
            return _take(self._frames[camera], rows + self._first_obs[episodes][:, None])
        return self._read_frames(camera, episodes, rows)

    def _refs(self, episodes: np.ndarray, anchors: np.ndarray, action_offsets: Sequence[int]) -> tuple[ClipRef, ...]:
        names = [str(store.path) for store in self.stores]
        lengths = self.lengths[episodes]
        starts = np.clip(anchors + int(action_offsets[0]), 0, lengths).tolist()
        stops = np.clip(anchors + int(action_offsets[-1]) + 1, 0, lengths).tolist()
        stores, indices = self.store_of[episodes].tolist(), self.index[episodes].tolist()
        return tuple(ClipRef(names[s], i, a, b) for s, i, a, b in zip(stores, indices, starts, stops, strict=True))

    def _flat(self, key: str, rows: np.ndarray) -> np.ndarray:
        """Return array ``key`` of all episodes laid end to end; ``rows`` [E] counts each one's."""
        total = int(rows.sum())
        out = None
        for e, (first, count) in enumerate(zip(clips.first_rows(rows), rows, strict=True)):
            part = self.stores[self.store_of[e]].rows(self.index[e], key, out=None if out is None else out[first : first + count])
            if out is None:
                out = np.empty((total, *part.shape[1:]), part.dtype)
                out[first : first + count] = part
        return out

    def _read_frames(self, camera: str, episodes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        height, width = self.stores[0].spec.cameras[camera]
        out = np.empty((*rows.shape, height, width, 3), np.uint8)
        for b, (e, wanted) in enumerate(zip(episodes, rows, strict=True)):
            first, last = int(wanted.min()), int(wanted.max())
            block = self.stores[self.store_of[e]].rows(self.index[e], IMAGE + camera, first, last + 1)
            out[b] = block[wanted - first]
        return out

    def _sidecars(self, names: list[str | None], key: str, default: np.ndarray) -> np.ndarray:
        """Return array ``key`` of each store's sidecar laid end to end, ``default`` [sum(T)] where a store has none."""
        out = default.copy()
        for s, name in enumerate(names):
            if name is None:
                continue
            store = self.stores[s]
            arrays = read_sidecar(store, name)
            if key not in arrays:
                raise UserError(f"sidecar {name!r} of {store.path} has no {key!r}; it has {', '.join(arrays)}")
            first = clips.first_rows(store.lengths)
            for e in np.flatnonzero(self.store_of == s):
                out[self._first_step[e] :][: self.lengths[e]] = arrays[key][first[self.index[e]] :][: self.lengths[e]]
        return out


class ClipSampler:
    """Draws batches of clips. ``batch(step)`` is a pure function of (seed, step), so resuming needs no state.

    Each clip comes from a store with probability share / sum of shares (None: as many as it has anchors) and is uniform over them. Clips
    of which every action weighs 0 are not drawn; their store's share shrinks with them, so that what remains keeps its part of the loss.
    Before ``early_steps`` the stores' ``early_weights`` count.
    ``split`` keeps the episodes that ``held_out`` puts aside ("validation") or the others ("train"); with ``holdout`` 0 all are in "train".
    """

    def __init__(
        self,
        stores: Sequence[StoreShare | Mapping],
        *,
        cameras: Sequence[str],
        obs_offsets: Sequence[int],
        action_offsets: Sequence[int],
        batch_size: int,
        seed: int,
        anchors: Literal["policy", "rows", "start", "inside", "future"] = "policy",
        holdout: float = 0.0,
        split: Literal["train", "validation"] = "train",
        early_steps: int = 0,
        budget: int = MEMORY_BUDGET,
    ):
        shares = as_shares(stores)
        check_early(shares, early_steps)
        _check_choice("anchors", anchors, clips.ANCHORS)
        _check_choice("split", split, ("train", "validation"))
        clips.check_offsets(obs_offsets, action_offsets)
        self.batch_size, self.seed, self._early_steps = int(batch_size), int(seed), early_steps
        self._obs, self._act = [int(o) for o in obs_offsets], [int(o) for o in action_offsets]
        opened = [EpisodeStore.open(share.path, cameras=cameras) for share in shares]
        kept = [_keep(store, share, holdout, split) for store, share in zip(opened, shares, strict=True)]
        named = {field: [getattr(share, field) for share in shares] for field in ("weights", "early_weights")}
        self.reader = ClipReader(opened, cameras, episodes=kept, **named, budget=budget)
        self._episode, self._step = clips.ANCHORS[anchors](self.reader.lengths, self._obs, self._act)
        if (self.reader.lengths == 0).any() and len(self._episode):  # an episode without steps has no action to learn from
            some = self.reader.lengths[self._episode] > 0
            self._episode, self._step = self._episode[some], self._step[some]
        counts = np.bincount(self.reader.store_of[self._episode], minlength=len(shares))
        for share, count in zip(shares, counts, strict=True):
            if count == 0:
                raise UserError(f"{share.path}: no episode is long enough for offsets {self._obs} and {self._act}; shorten the window")
        sizes = np.array([count if share.share is None else share.share for share, count in zip(shares, counts, strict=True)], float)
        left = self._drop_weightless(len(shares))
        self._first, self._count = clips.first_rows(left), left
        self._shares = sizes * (left / counts) / (sizes * (left / counts)).sum()

    def __len__(self) -> int:
        """Anchors over all stores."""
        return len(self._episode)

    def batch(self, step: int) -> ClipBatch:
        """Return batch ``step``: the same clips whenever and wherever it is asked for."""
        return self.clips(self.draw(step), early=step < self._early_steps)

    def draw(self, step: int) -> np.ndarray:
        """Return the numbers int64 [B] of the anchors in batch ``step``."""
        rng = np.random.default_rng([self.seed, int(step)])
        store = rng.choice(len(self._shares), self.batch_size, p=self._shares)
        return self._first[store] + (rng.random(self.batch_size) * self._count[store]).astype(np.int64)

    def clips(self, numbers: np.ndarray, *, early: bool = False) -> ClipBatch:
        """Return the clips at the anchors ``numbers`` int [B], each in 0 .. len - 1."""
        return self.reader.read(self._episode[numbers], self._step[numbers], self._obs, self._act, early=early)

    def starts(self, numbers: np.ndarray, cameras: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return the first frames uint8 [B, 1, h, w, 3] of the episodes that the anchors ``numbers`` lie in."""
        episodes = self._episode[numbers]
        rows = np.zeros((len(episodes), 1), np.int64)
        return {c: torch.from_numpy(self.reader.frames(c, episodes, rows)) for c in cameras}

    def _drop_weightless(self, stores: int) -> np.ndarray:
        """Forget anchors whose clips teach nothing; return how many each store has left."""
        if len(self._episode) and min(self.reader.weight.min(), self.reader.early_weight.min()) <= 0:
            kept = self.reader.weighs(self._episode, self._step, self._act)
            if not kept.any():
                raise UserError("every step of the stores weighs 0; nothing is left to learn from, weigh them otherwise")
            self._episode, self._step = self._episode[kept], self._step[kept]
        return np.bincount(self.reader.store_of[self._episode], minlength=stores)


def check_early(shares: Sequence[StoreShare], early_steps: int) -> None:
    """Raise UserError unless ``early_steps`` and ``early_weights`` come together."""
    named = any(share.early_weights is not None for share in shares)
    if early_steps < 0 or named != (early_steps > 0):
        raise UserError(f"early_steps={early_steps}; give it, at least 1, together with early_weights of a store, or neither of them")


def held_out(metas: Iterable[EpisodeMeta], fraction: float) -> np.ndarray:
    """Return bool [E]: which episodes are set aside for validation.

    Decided by a hash of task and start seed alone: adding episodes moves no other, and the same start is on the same side in every store.
    """
    digests = (hashlib.sha256(f"{meta.task}/{meta.source.seed}".encode()).digest() for meta in metas)
    return np.array([int.from_bytes(digest[:8]) < fraction * 2**64 for digest in digests], bool)


def _keep(store: EpisodeStore, share: StoreShare, holdout: float, split: str) -> np.ndarray:
    if len(store) == 0:
        raise UserError(f"{share.path} holds no episodes; record some or leave it out")
    keep = held_out(store.metas, holdout) == (split == "validation")
    if not keep.any():
        raise UserError(f"{share.path}: none of {len(store)} episodes is in split {split!r} with holdout {holdout}; change holdout")
    if share.only_success:
        keep &= np.array([meta.success == 1 for meta in store.metas])
        if not keep.any():
            raise UserError(
                f"{share.path}: none of {len(store)} episodes ({split}) is judged successful; set only_success=false or leave it out"
            )
    return np.flatnonzero(keep)


def _take(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    if len(array) == 0:
        return np.zeros((*rows.shape, *array.shape[1:]), array.dtype)
    return array.take(rows, axis=0, mode="clip")


def _zip(stores: list[EpisodeStore], episodes: Sequence[np.ndarray | None] | None):
    return zip(stores, [None] * len(stores) if episodes is None else episodes, strict=True)


def _check_choice(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise UserError(f"{name} is {value!r}; {nearest(str(value), known)}")


def _check_alike(stores: list[EpisodeStore], cameras: list[str]) -> None:
    if not stores:
        raise UserError("no store given; name at least one")
    first = stores[0]
    for store in stores:
        if len(store) == 0:
            raise UserError(f"{store.path} holds no episodes; record some or leave it out")
        store.spec.check_cameras(cameras, str(store.path))
        for camera in cameras:
            if store.spec.cameras[camera] != first.spec.cameras[camera]:
                raise UserError(
                    f"camera {camera!r} is {store.spec.cameras[camera]} in {store.path}, {first.spec.cameras[camera]} in {first.path}; "
                    "record or import both at one size"
                )
        for key in ("state_names", "action_names", "action_kind"):
            if getattr(store.spec, key) != getattr(first.spec, key):
                raise UserError(
                    f"{key} is {getattr(store.spec, key)} in {store.path}, {getattr(first.spec, key)} in {first.path}; they cannot be mixed"
                )
