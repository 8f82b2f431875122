"""Checkpoints that survive a kill at any moment: a folder written under a temporary name, renamed, and only then pointed at by ``last``.

checkpoints/00000050/state.safetensors   every tensor
checkpoints/00000050/meta.json           step, counters, configuration, digest of the tensors (written into the folder last)
checkpoints/last -> 00000050
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import warn

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from robowm.artefacts import fingerprint_files
from robowm.errors import UserError

STATE, META, LAST = "state.safetensors", "meta.json", "last"
KEEP = 2  # the newest, and the one to fall back on


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds."""

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]  # counters and the configuration


def save_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Write ``folder/<step>``, move ``folder/last`` to it, then drop all but the newest two. A full disk leaves what was there."""
    target, temporary = folder / f"{step:08d}", folder / f".{step:08d}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        # safetensors refuses tensors that share memory (tied weights), so each is copied out
        save_file({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}, temporary / STATE)
        _sync(temporary / STATE)
        meta = {"step": step, "digest": fingerprint_files([temporary / STATE]), **facts}
        (temporary / META).write_text(json.dumps(meta))
        _sync(temporary / META)
        if target.exists():
            shutil.rmtree(target)
        os.rename(temporary, target)
        _sync(folder)
        _point_last(folder, target.name)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(f"cannot write checkpoint {target}: {error}; free some space and run again, it resumes from {LAST}") from error
    for old in _numbered(folder)[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def load_newest(folder: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint under ``folder``, None if there is none at all.

    A damaged one is passed over with a warning that names it; when every one is damaged a UserError says so.
    """
    problems = []
    for path in _candidates(folder):
        try:
            return _load(path)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            problems.append(f"{path}: {error}")
            warn(f"checkpoint {path} is damaged ({error}); falling back on the one before", stacklevel=2)
    if problems:
        raise UserError(f"no checkpoint under {folder} can be read ({'; '.join(problems)}); delete the folder to train from the start")
    return None


def config_differences(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return one ``key: saved -> wanted`` for each leaf that differs between two JSON-like mappings."""
    left, right = dict(_leaves(json.loads(json.dumps(saved, default=str)))), dict(_leaves(json.loads(json.dumps(wanted, default=str))))
    missing = "(none)"
    return [
        f"{key}: {left.get(key, missing)} -> {right.get(key, missing)}"
        for key in sorted(left.keys() | right.keys())
        if left.get(key, missing) != right.get(key, missing)
    ]


def _load(path: Path) -> Checkpoint:
    meta = json.loads((path / META).read_text())
    found = fingerprint_files([path / STATE])
    if found != meta["digest"]:
        raise ValueError(f"{STATE} has digest {found}, expected {meta['digest']}")
    return Checkpoint(int(meta["step"]), load_file(path / STATE), {k: v for k, v in meta.items() if k not in ("step", "digest")})


def _candidates(folder: Path) -> list[Path]:
    """Return checkpoint folders, the one ``last`` points at first, then the newest first.

    A kill between renaming a folder and moving ``last`` leaves a newer whole one; resuming from the older is as exact.
    """
    newest_first = _numbered(folder)[::-1]
    last = folder / LAST
    if last.is_symlink() and (folder / os.readlink(last)) in newest_first:
        first = folder / os.readlink(last)
        return [first, *(path for path in newest_first if path != first)]
    return newest_first


def _numbered(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.isdigit() and path.is_dir())


def _point_last(folder: Path, name: str) -> None:
    temporary = folder / f".{LAST}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    os.symlink(name, temporary)
    os.replace(temporary, folder / LAST)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value
