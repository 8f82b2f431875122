"""EpisodeStore: recorded episodes in a folder, one zarr 3 group each, appended atomically and never changed afterwards.

    <store>/zarr.json                     root group; attributes hold the schema version and the StoreSpec
    <store>/episodes/000000.zip           zarr group in one file (data/zarr3.py): attributes hold task, source, success, ...; arrays are
                                          observation.images.<camera>, observation.state, action, next.reward, controller, segment, ...
    <store>/sidecars/<name>.safetensors   per-step arrays computed later (weights, labels), bound to the store's fingerprint
    <store>/.writing/  <store>/interrupted/   episodes being written, and what killed writers left behind (never read)
    <store>/artefact.json                 written by the stage that filled the store, when it is done

A store folder IS the artefact folder of the stage that fills it: while ``artefact.json`` is missing the stage is unfinished and may append
(``EpisodeStore.open`` reads such a store just the same); ``seal`` writes it, and a sealed store refuses to grow, because later artefacts
name its fingerprint. Several processes may append to one store at once.
"""

from __future__ import annotations

import fcntl
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from robowm.artefacts import ARTEFACT, fingerprint_json, write_artefact, write_json
from robowm.data import zarr3
from robowm.data.spec import (
    ACTION,
    CONTROLLER,
    ENVIRONMENT_STATE,
    IMAGE,
    REWARD,
    SEGMENT,
    STATE,
    EpisodeMeta,
    StoreSpec,
    check_episode,
    describe,
    episode_arrays,
)
from robowm.errors import UserError
from robowm.types import Episode

__all__ = ["EpisodeMeta", "EpisodeStore", "StoreSpec"]

SCHEMA = 1
FRAME_ROWS = 32  # frames in one chunk: a clip of a few frames decompresses at most two
EPISODES, WRITING, INTERRUPTED, LOCK = "episodes", ".writing", "interrupted", ".lock"
log = logging.getLogger(__name__)


class EpisodeStore:
    """Episodes 0 .. len - 1 in the order in which they were appended. Use ``create``, ``open`` or ``open_or_create``."""

    def __init__(self, path: Path, spec: StoreSpec):
        self.path = path
        self.spec = spec
        self.interrupted: list[str] = []  # leftovers of killed writers that opening this store set aside
        self._groups: list[zarr3.Group] = []  # one file per episode
        self._metas: list[EpisodeMeta] = []

    # ------------------------------------------------------------------ opening

    @classmethod
    def create(cls, path: str | Path, spec: StoreSpec) -> EpisodeStore:
        """Make an empty store. Raises UserError if ``path`` already holds one, or anything of another format."""
        path = Path(path)
        _refuse_zarr2(path)
        if (path / "zarr.json").exists():
            raise UserError(f"{path} already holds a zarr group; open it to add to it, or choose another output_dir")
        episodes = path / EPISODES
        episodes.mkdir(parents=True, exist_ok=True)
        write_json(episodes / "zarr.json", zarr3.group_metadata({}))
        write_json(path / "zarr.json", zarr3.group_metadata({"robowm": {"schema": SCHEMA, "spec": spec.to_json()}}))
        return cls(path, spec)

    @classmethod
    def open(cls, path: str | Path, *, cameras: Iterable[str] = ()) -> EpisodeStore:
        """Open a store, finished or not, and check schema, zarr format and that it has ``cameras``."""
        path = Path(path)
        if not path.is_dir():
            raise UserError(f"{path} does not exist; expected an episode store (robowm collect or robowm import makes one)")
        _refuse_zarr2(path)
        if not (path / "zarr.json").is_file():
            found = ", ".join(sorted(child.name for child in path.iterdir())[:5]) or "nothing"
            raise UserError(f"{path} is not an episode store: it holds no zarr.json but {found}; robowm import reads other formats")
        record = zarr3.read_metadata(path).get("attributes", {}).get("robowm")
        if record is None:
            raise UserError(f"{path} is a zarr group but not an episode store; robowm import reads other formats")
        if record["schema"] != SCHEMA:
            raise UserError(f"{path} has schema {record['schema']}, this robowm reads {SCHEMA}; install the robowm that wrote it")
        store = cls(path, StoreSpec.from_json(record["spec"]))
        store.spec.check_cameras(cameras, str(path))
        store.interrupted = _set_aside(path)
        store._scan()
        return store

    @classmethod
    def open_or_create(cls, path: str | Path, spec: StoreSpec) -> EpisodeStore:
        """Open the store at ``path`` for appending, or make it. An existing one must have the same ``spec``."""
        if not (Path(path) / "zarr.json").exists():
            return cls.create(path, spec)
        store = cls.open(path)
        if store.spec != spec:
            old, new = store.spec.to_json(), spec.to_json()
            key = next(key for key in new if new[key] != old[key])
            raise UserError(f"{path} was recorded with {key} = {old[key]}, not {new[key]}; choose another output_dir")
        return store

    def _scan(self) -> None:
        """Take in episodes that were published since the last look. Numbers are claimed in order, so new ones come last."""
        known = {group.path.name for group in self._groups}
        keys = self.spec.array_keys()
        for name in _episode_files(self.path / EPISODES):
            if name in known:
                continue
            group = zarr3.open_group(self.path / EPISODES / name)
            if missing := [key for key in keys if key not in group.arrays]:
                raise UserError(f"{group.path} lacks {missing[0]!r}; it has {', '.join(group.arrays)}")
            self._groups.append(group)
            self._metas.append(EpisodeMeta.from_json(group.attributes["robowm"]))

    # ------------------------------------------------------------------ reading

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def lengths(self) -> np.ndarray:
        """int64 [E], steps of each episode."""
        return np.array([meta.length for meta in self._metas], np.int64)

    @property
    def metas(self) -> list[EpisodeMeta]:
        """The facts of all episodes."""
        return list(self._metas)

    def meta(self, i: int) -> EpisodeMeta:
        """Return the facts of episode ``i`` without reading its arrays."""
        return self._metas[self._index(i)]

    def rows(self, i: int, key: str, start: int = 0, stop: int | None = None, out: np.ndarray | None = None) -> np.ndarray:
        """Return rows ``start`` to ``stop`` of array ``key`` of episode ``i``, reading no other chunks, into ``out`` if given.

        Raises UserError where there is no such array, where its file is damaged, and for NaN or infinity.
        """
        group = self._groups[self._index(i)]
        if key not in group.arrays:
            raise UserError(f"{self.path} has no {key!r}; it has {', '.join(self.spec.array_keys())}")
        found = zarr3.read_rows(group, key, start, stop, out)
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            bad = np.argwhere(~np.isfinite(found))[0]
            raise UserError(
                f"{group.path}: {key} is {found[tuple(bad)]} in row {start + bad[0]}, entry {bad[1:].tolist()}; repair or delete the file"
            )
        return found

    def episode(self, i: int, cameras: Iterable[str] | None = None) -> Episode:
        """Return episode ``i`` with the frames of ``cameras`` (None: all; an empty list: without frames)."""
        i = self._index(i)
        cameras = list(self.spec.cameras) if cameras is None else list(cameras)
        self.spec.check_cameras(cameras, str(self.path))
        meta = self._metas[i]
        return Episode(
            frames={camera: self.rows(i, IMAGE + camera) for camera in cameras},
            state=self.rows(i, STATE),
            environment_state=None if self.spec.environment_state_names is None else self.rows(i, ENVIRONMENT_STATE),
            action=self.rows(i, ACTION),
            reward=self.rows(i, REWARD),
            controller=self.rows(i, CONTROLLER),
            segment=self.rows(i, SEGMENT),
            task=meta.task,
            fps=meta.fps,
            source=meta.source,
            success=meta.success,
            judged_by=meta.judged_by,
            terminated=meta.terminated,
        )

    def fingerprint(self) -> str:
        """Return 16 hex digits over the spec and the content of all episodes in their order."""
        return fingerprint_json([SCHEMA, self.spec.to_json(), [meta.content for meta in self._metas]])

    def file(self, i: int) -> Path:
        """Return the file of episode ``i``."""
        return self._groups[self._index(i)].path

    def _index(self, i: int) -> int:
        if not -len(self) <= i < len(self):
            raise IndexError(f"episode {i} of {self.path}, which holds {len(self)}")
        return int(i) % len(self)

    # ------------------------------------------------------------------ writing

    def append(self, episode: Episode) -> int:
        """Add ``episode`` and return its index. Either all of it is in the store afterwards, or none.

        Raises UserError for NaN or infinity, a wrong shape or dtype, a sealed store, and a full disk (what was there before stays).
        """
        check_episode(self.spec, episode)
        meta = describe(episode)

        arrays = episode_arrays(episode)
        rows = {key: FRAME_ROWS for key in arrays if key.startswith(IMAGE)}
        return self._publish(lambda file: zarr3.write_group(file, {"robowm": meta.to_json()}, arrays, rows))

    def adopt(self, other: EpisodeStore, i: int) -> int:
        """Append a byte-for-byte copy of episode ``i`` of another store with the same spec and return its index here."""
        if other.spec != self.spec:
            raise UserError(f"{other.path} and {self.path} were recorded differently; their specs must be equal")
        return self._publish(lambda file: file.write(other.file(i).read_bytes()))

    def seal(self, *, inputs: Mapping[str, str], config: Mapping[str, Any], **facts: Any) -> None:
        """Write ``artefact.json``: the stage that fills this store is done."""
        judged = [meta.success for meta in self._metas if meta.success == meta.success]
        counts = {"episodes": len(self), "steps": int(self.lengths.sum()), "successes": int(sum(judged)), "judged": len(judged)}
        write_artefact(self.path, kind="store", fingerprint=self.fingerprint(), inputs=inputs, config=config, **counts, **facts)

    def unseal(self) -> None:
        """Let a finished store grow again; what was made from it remembers the fingerprint that it had."""
        (self.path / ARTEFACT).unlink(missing_ok=True)

    def _publish(self, fill: Callable[[BinaryIO], Any]) -> int:
        """Let ``fill`` write an episode into a fresh file, make it durable and rename it to the next free number."""
        if (self.path / ARTEFACT).exists():
            raise UserError(f"{self.path} is finished and does not grow any more; choose another output_dir")
        temporary = None
        try:
            with _begin(self.path / WRITING) as file:  # its lock is held until it has its number
                temporary = Path(file.name)
                fill(file)
                file.flush()
                os.fsync(file.fileno())
                name = self._claim(temporary)
            _sync_folder(self.path / EPISODES)
        except OSError as error:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
            raise UserError(
                f"cannot write episode {len(self)} to {self.path}: {error.strerror}; the {len(self)} episodes before it are safe, "
                "free some space or choose another output_dir and run again"
            ) from error
        self._scan()
        return next(i for i, group in enumerate(self._groups) if group.path.name == name)

    def _claim(self, temporary: Path) -> str:
        """Rename ``temporary`` to the number after the last, one writer at a time."""
        with (self.path / WRITING / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            names = _episode_files(self.path / EPISODES)
            name = f"{int(Path(names[-1]).stem) + 1 if names else 0:06d}.zip"
            os.rename(temporary, self.path / EPISODES / name)
        return name


def _episode_files(folder: Path) -> list[str]:
    """Return the names of the episodes in ``folder`` in the order of their numbers."""
    return sorted((n for n in os.listdir(folder) if n.endswith(".zip") and n[:-4].isdigit()), key=lambda n: int(n[:-4]))


def _refuse_zarr2(path: Path) -> None:
    for name in (".zgroup", ".zarray", ".zattrs", f"{EPISODES}/.zgroup"):
        if (path / name).exists():
            raise UserError(
                f"{path} holds {name}, so it is zarr 2; stores are zarr 3: convert it with robowm import, format diffusion_policy"
            )


def _begin(folder: Path) -> BinaryIO:
    """Make a fresh file to write in and lock it: the lock ends with the process, which tells a live writer from a killed one."""
    folder.mkdir(exist_ok=True)
    while True:
        file = (folder / f"{uuid.uuid4().hex}.zip").open("xb")
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.exists(file.name):  # a reader may have taken it for a leftover before it was locked
            return file
        file.close()


def _set_aside(path: Path) -> list[str]:
    """Move what killed writers left in ``.writing`` to ``interrupted`` and return the names. Live writers hold a lock."""
    moved = []
    for leftover in (path / WRITING).glob("*.zip"):
        try:
            with leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (path / INTERRUPTED).mkdir(exist_ok=True)
                os.rename(leftover, path / INTERRUPTED / leftover.name)
                moved.append(leftover.name)
        except OSError:  # its writer lives, it was just published, or the store is read-only: it is not read in any case
            continue
    if moved:
        log.warning("%s: set aside %d half-written episode(s) in %s", path, len(moved), path / INTERRUPTED)
    return moved


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
