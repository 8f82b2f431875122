"""Join stores and pick episodes out of them, byte for byte. Sidecars stay behind: they belong to the store they were computed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from robowm.data.store import EpisodeStore
from robowm.errors import UserError


def merge_stores(paths: Sequence[str | Path], out: str | Path) -> EpisodeStore:
    """Write the episodes of ``paths`` one store after the other to the new store ``out``. Their specs must be equal."""
    if not paths:
        raise UserError("nothing to merge: name at least one store")
    stores = [EpisodeStore.open(path) for path in paths]
    merged = EpisodeStore.create(out, stores[0].spec)
    for store in stores:
        for i in range(len(store)):
            merged.adopt(store, i)
    return merged


def select_episodes(path: str | Path, episodes: Iterable[int], out: str | Path) -> EpisodeStore:
    """Write the named episodes of ``path`` in that order to the new store ``out``."""
    store = EpisodeStore.open(path)
    episodes = list(episodes)
    if bad := [i for i in episodes if not 0 <= i < len(store)]:
        raise UserError(f"{path} has no episode {bad[0]}; it holds 0 to {len(store) - 1}")
    selected = EpisodeStore.create(out, store.spec)
    for i in episodes:
        selected.adopt(store, i)
    return selected
