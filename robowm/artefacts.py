"""Run folders, fingerprints and provenance: how stages find, trust and reuse each other's results.

An artefact is a folder that holds ``artefact.json``, written last and atomically: a folder without it is unfinished work.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from robowm.errors import UserError

ARTEFACT = "artefact.json"
REQUEST = "request.json"
BEFORE_WORK = (REQUEST, "command.json", "progress.json")  # what a folder may hold before anything was made
PACKAGES = ("robowm", "torch", "lerobot", "diffusers", "mujoco", "numpy", "zarr", "hydra-core")


def fingerprint_json(value: Any) -> str:
    """Return 16 hex digits over the canonical JSON of ``value``."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint_files(paths: Sequence[Path]) -> str:
    """Return 16 hex digits over names and contents of ``paths``."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]


def write_text(path: Path, text: str) -> None:
    """Write ``text`` so that a reader, or a kill at any moment, sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")  # made with the usual permissions, unlike tempfile's
    try:
        with temporary.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}; free some space or choose another output_dir") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, default=str) + "\n")


def claim(folder: Path, *, kind: str, inputs: Mapping[str, str], config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Begin or resume work in ``folder``: return the record if this very request is finished, else None (go on with what is there).

    The request is remembered in ``request.json``; a folder begun for another one is refused, naming the first difference.
    """
    request = json.loads(json.dumps({"kind": kind, "inputs": dict(inputs), "config": dict(config)}, default=str))
    path = folder / REQUEST
    if path.is_file():
        earlier = json.loads(path.read_text())
        if earlier != request and _untouched(folder):
            write_json(path, request)
        elif earlier != request:
            name, old, new = _first_difference(earlier, request)
            raise UserError(
                f"{folder} was begun with {name} = {old!r}, now asked with {new!r}; choose another output_dir or delete the folder"
            )
    else:
        write_json(path, request)
    return read_artefact(folder, kind) if (folder / ARTEFACT).is_file() else None


def _first_difference(earlier: Any, now: Any, name: str = "") -> tuple[str, Any, Any]:
    if isinstance(earlier, dict) and isinstance(now, dict):
        for key in sorted(earlier.keys() | now.keys()):
            if earlier.get(key) != now.get(key):
                return _first_difference(earlier.get(key), now.get(key), f"{name}.{key}" if name else key)
    if isinstance(earlier, list) and isinstance(now, list) and len(earlier) == len(now):
        for i, (old, new) in enumerate(zip(earlier, now, strict=True)):
            if old != new:
                return _first_difference(old, new, f"{name}[{i}]")
    return name, earlier, now


def _untouched(folder: Path) -> bool:
    """Tell whether a request was noted in ``folder`` but nothing made: the run was refused before it began."""
    return all(path.name in BEFORE_WORK or path.name.startswith(".") for path in folder.iterdir())


def write_artefact(
    folder: Path, *, kind: str, fingerprint: str, inputs: Mapping[str, str], config: Mapping[str, Any], **facts: Any
) -> None:
    """Seal ``folder`` as a finished artefact. ``inputs`` maps names to the fingerprints of what it was made from."""
    record = {"kind": kind, "fingerprint": fingerprint, "inputs": dict(inputs), "config": dict(config), **facts, "made_with": provenance()}
    write_json(folder / ARTEFACT, record)


def read_artefact(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """Return the record of a finished artefact, checking its kind."""
    path = folder / ARTEFACT
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist; expected a finished {kind or 'artefact'} folder")
    if not path.is_file():
        raise UserError(f"{folder} holds no {ARTEFACT}: the run that makes it has not finished; run it again, it resumes")
    try:
        record = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not valid JSON ({error}); delete the folder and run its stage again") from error
    if kind is not None and record.get("kind") != kind:
        raise UserError(f"{folder} is a {record.get('kind')!r}, expected a {kind!r}")
    return record


def provenance() -> dict[str, Any]:
    """Return git commit, package versions, platform and renderer of this process."""
    return {
        "commit": git_commit(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "renderer": os.environ.get("MUJOCO_GL") or os.environ.get("PYOPENGL_PLATFORM", ""),  # MuJoCo sets the second when it first renders
    }


def git_commit() -> str:
    """Return the commit of the code in use, with ``+`` when files differ from it, or ``unknown`` outside a checkout."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
