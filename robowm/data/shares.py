"""Which stores a training run draws from, in what shares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robowm.artefacts import fingerprint_json
from robowm.data.sidecar import read_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError


@dataclass(frozen=True)
class StoreShare:
    """A store and the share of each batch that comes from it."""

    path: str | Path
    share: float = 1.0  # relative to the other stores
    only_success: bool = False  # keep episodes judged successful
    weights: str | None = None  # sidecar whose 'weight' [steps] scales the loss per step

    def settings(self) -> dict[str, Any]:
        """Return everything but the path, for a record that names data by fingerprint."""
        return {key: value for key, value in asdict(self).items() if key != "path"}


def as_shares(stores: Sequence[StoreShare | Mapping[str, Any]]) -> list[StoreShare]:
    """Return ``stores`` as shares; at least one, each above 0."""
    shares = [share if isinstance(share, StoreShare) else StoreShare(**share) for share in stores]
    if not shares or any(not share.share > 0 for share in shares):
        raise UserError(f"stores have shares {[share.share for share in shares]}; give at least one store, each with a share above 0")
    return shares


def open_shares(stores: Sequence[StoreShare | Mapping[str, Any]]) -> tuple[list[StoreShare], list[EpisodeStore], dict[str, str]]:
    """Return the shares, their open stores, and the fingerprints of the data: each store's, and its weights' where a sidecar gives some."""
    shares = as_shares(stores)
    opened = [EpisodeStore.open(share.path) for share in shares]
    found = {}
    for i, (store, share) in enumerate(zip(opened, shares, strict=True)):
        found[f"store{i}"] = store.fingerprint()
        if share.weights is not None:
            weights = read_sidecar(store, share.weights)
            found[f"store{i}.weights"] = fingerprint_json(
                {key: hashlib.sha256(array.tobytes()).hexdigest() for key, array in weights.items()}
            )
    return shares, opened, found
