"""Sidecars: arrays computed from a store, one row per step, kept beside the recorded data and bound to its fingerprint.

Rows are numbered over the whole store: step t of episode i is row ``sum(lengths[:i]) + t``. A store that has grown, or another store,
refuses the sidecar; compute it again.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from robowm.data.store import EpisodeStore
from robowm.errors import UserError, nearest

FOLDER = "sidecars"


def write_sidecar(store: EpisodeStore, name: str, arrays: Mapping[str, np.ndarray], *, inputs: Mapping[str, str] | None = None) -> Path:
    """Write ``arrays`` {key: [steps of the store, ...]} under ``name``; ``inputs`` maps names to fingerprints of what made them.

    Raises UserError for a wrong number of rows, NaN, or a full disk.
    """
    steps = int(store.lengths.sum())
    for key, array in arrays.items():
        if len(array) != steps:
            raise UserError(f"sidecar {name!r}: {key!r} has {len(array)} rows, {store.path} has {steps} steps")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UserError(f"sidecar {name!r}: {key!r} holds {array[~np.isfinite(array)][0]}; values must be finite")
    facts = {"store": store.fingerprint(), "inputs": json.dumps(dict(inputs or {}))}
    data = save({key: np.ascontiguousarray(array) for key, array in arrays.items()}, metadata=facts)
    path = store.path / FOLDER / f"{name}.safetensors"
    path.parent.mkdir(exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}; free some space and run again") from error
    return path


def read_sidecar(store: EpisodeStore, name: str) -> dict[str, np.ndarray]:
    """Return the arrays of sidecar ``name``. Raises UserError if there is none or if it was computed from other data."""
    path = store.path / FOLDER / f"{name}.safetensors"
    if not path.is_file():
        known = [file.stem for file in path.parent.glob("*.safetensors")]
        raise UserError(f"{store.path} has no sidecar {name!r}; {nearest(name, known)}")
    try:
        with safe_open(path, framework="numpy") as file:
            facts = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}); compute it again") from error
    if facts.get("store") != store.fingerprint():
        raise UserError(
            f"sidecar {name!r} was computed from store {facts.get('store')}, {store.path} is now {store.fingerprint()}; compute it again"
        )
    return arrays
