"""Which stores a training run draws from, in what shares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from robowm.artefacts import fingerprint_json, read_artefact
from robowm.data.sidecar import read_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError, nearest
from robowm.seeds import SEED_RANGES


@dataclass(frozen=True)
class StoreShare:
    """A store and the share of each batch that comes from it."""

    path: str | Path
    share: float | None = 1.0  # relative to the other stores; None in all of them: each in proportion to its steps
    only_success: bool = False  # keep episodes judged successful
    weights: str | None = None  # sidecar whose 'weight' [steps] scales the loss per step
    early_weights: str | None = None  # another one that does so in the first updates (early_steps of a training)
    audit: str | Path | None = None  # folder of evaluate-imagined: the share is scaled by how many claimed successes held

    def settings(self) -> dict[str, Any]:
        """Return everything but the paths, for a record that names data by fingerprint."""
        found = {key: value for key, value in asdict(self).items() if key not in ("path", "audit")}
        return found if self.early_weights is not None else {key: value for key, value in found.items() if key != "early_weights"}


def as_entries(kind: type, entries: Any) -> list[Any]:
    """Return ``entries`` as the dataclass ``kind``, whose first field is a path: each may be one, its fields, or the path alone."""
    known = [field.name for field in fields(kind)]
    if isinstance(entries, str | Path | Mapping | kind):
        raise UserError(f"stores={entries}; give a list, e.g. stores='[{{path: {getattr(entries, 'path', entries)}}}]'")
    found = []
    for entry in entries:
        if isinstance(entry, kind):
            found.append(entry)
        elif isinstance(entry, Mapping):
            if unknown := [key for key in entry if key not in known]:
                raise UserError(f"stores: an entry has no key {unknown[0]!r}; {nearest(str(unknown[0]), known)}")
            if known[0] not in entry:
                raise UserError(f"stores: {dict(entry)} names no path; give e.g. {{path: data/demos}}")
            found.append(kind(**entry))
        elif isinstance(entry, str | Path):
            found.append(kind(entry))
        else:
            raise UserError(f"stores: {entry!r} is no store; give e.g. {{path: data/demos}}")
    return found


def as_shares(stores: Sequence[StoreShare | Mapping[str, Any] | str | Path]) -> list[StoreShare]:
    """Return ``stores`` as shares; at least one, each above 0, or all of them None."""
    shares = as_entries(StoreShare, stores)
    given = [share.share for share in shares]
    if not shares or any(share is not None and not share > 0 for share in given):
        raise UserError(f"stores have shares {given}; give at least one store, each with a share above 0")
    if None in given and any(given):
        raise UserError(f"stores have shares {given}; give each store a number, or none of them (null: in proportion to their steps)")
    return shares


def open_shares(stores: Sequence[StoreShare | Mapping[str, Any]]) -> tuple[list[StoreShare], list[EpisodeStore], dict[str, str]]:
    """Return shares as numbers, scaled by audits, their open stores, and fingerprints of the data: each store, its weights, its audit."""
    shares = as_shares(stores)
    opened = [EpisodeStore.open(share.path) for share in shares]
    for store in opened:
        _refuse_evaluation_starts(store)
    shares = [
        replace(share, share=_steps(store, share.only_success)) if share.share is None else share
        for share, store in zip(shares, opened, strict=True)
    ]
    found = {}
    for i, (store, share) in enumerate(zip(opened, shares, strict=True)):
        found[f"store{i}"] = store.fingerprint()
        if share.audit is not None:
            record = _read_audit(store, Path(share.audit))
            shares[i] = replace(share, share=share.share * held(record["confusion"]))
            found[f"store{i}.audit"] = record["fingerprint"]
        for field in ("weights", "early_weights"):
            if (name := getattr(share, field)) is not None:
                arrays = read_sidecar(store, name)
                found[f"store{i}.{field}"] = fingerprint_json(
                    {key: hashlib.sha256(array.tobytes()).hexdigest() for key, array in arrays.items()}
                )
    return shares, opened, found


def _steps(store: EpisodeStore, only_success: bool) -> float:
    """Return how many steps the episodes that count have, at least one so that whoever reads them says that there are none."""
    return float(max(sum(meta.length for meta in store.metas if not only_success or meta.success == 1), 1))


def _refuse_evaluation_starts(store: EpisodeStore) -> None:
    """Raise UserError for episodes recorded from starts that published numbers are measured on; demonstrations may count as they like."""
    seeds = [meta.source.seed for meta in store.metas if meta.source.kind != "demo" and meta.source.seed in SEED_RANGES["evaluation"]]
    if seeds:
        raise UserError(
            f"{store.path} holds {len(seeds)} episodes from evaluation starts, first {seeds[0]}; nothing may train on them, record others"
        )


def held(confusion: Mapping[str, int]) -> float:
    """Return how likely a claimed success is to hold, by Laplace's rule of succession: (held + 1) / (claims + 2), inside (0, 1)."""
    true, false = confusion["true_positive"], confusion["false_positive"]
    return (true + 1) / (true + false + 2)


def _read_audit(store: EpisodeStore, folder: Path) -> dict[str, Any]:
    record = read_artefact(folder, "imagined_vs_real")
    if record["inputs"]["imagined"] != store.fingerprint():
        raise UserError(
            f"{folder} audited the store {record['inputs']['imagined']}, {store.path} is {store.fingerprint()}; run evaluate-imagined on it"
        )
    return record
