"""The episode that is being recorded, on disk as it happens: memory stays flat, and a kill leaves a readable part behind.

    <output_dir>/.open/<id>/  facts.json and one raw file per array; moved to <output_dir>/interrupted/ where a killed run left it

Rows are handed to a thread, which writes them; the finished episode is read back from there and goes into the store in one step.
"""

from __future__ import annotations

import json
import queue
import shutil
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from real_robot.arm import Seen
from real_robot.labels import rewards, segments
from robowm.data.spec import ACTION, CONTROLLER, IMAGE, STATE, StoreSpec
from robowm.errors import UserError
from robowm.types import Controller, Episode, Source

OPEN, INTERRUPTED = ".open", "interrupted"
FACTS = "facts.json"


class Spool:
    """One open episode of ``spec`` in ``folder``, as a context manager: ``add`` steps, then ``finish``.

    Its files are deleted at the end; where an error ends it they stay, as a kill would leave them.
    """

    def __init__(self, folder: Path, spec: StoreSpec, facts: dict[str, Any]) -> None:
        self._spec = spec
        self._kinds = {IMAGE + camera: ((*size, 3), np.uint8) for camera, size in spec.cameras.items()}
        self._kinds |= {STATE: ((len(spec.state_names),), np.float32), ACTION: ((len(spec.action_names),), np.float32)}
        self._kinds[CONTROLLER] = ((), np.int8)
        self._folder = folder / OPEN / uuid.uuid4().hex
        self.steps = 0
        self._rows: queue.SimpleQueue[dict[str, np.ndarray] | None] = queue.SimpleQueue()
        self._failed: OSError | None = None
        try:
            self._folder.mkdir(parents=True)
            (self._folder / FACTS).write_text(json.dumps({"spec": spec.to_json(), **facts}))
            self._files = {key: (self._folder / key).open("wb", buffering=0) for key in self._kinds}
        except OSError as error:
            raise UserError(f"cannot write {self._folder}: {error.strerror}; free some space and run again, it resumes") from error
        self._thread = threading.Thread(target=self._write_on, name="recording", daemon=True)
        self._thread.start()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_) -> None:
        self._end()
        if kind is None or not self.steps:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, seen: Seen, action: np.ndarray, controller: Controller) -> None:
        """Record a step: ``action`` f32 [A] was sent on ``seen`` by ``controller``."""
        if self._failed is not None:
            raise UserError(f"cannot write {self._folder}: {self._failed.strerror}; free some space and run again, it resumes")
        row = self._observed(seen)
        row[ACTION], row[CONTROLLER] = np.asarray(action, np.float32), np.int8(controller)
        self._rows.put(row)
        self.steps += 1

    def finish(self, last: Seen, *, task: str, source: Source, success: float, judged_by: str) -> Episode:
        """Return the whole episode, which ends with the observation ``last``. Its files stay until the end."""
        self._rows.put(self._observed(last))
        self._end()
        if self._failed is not None:
            raise UserError(f"cannot write {self._folder}: {self._failed.strerror}; free some space and run again, it resumes")
        arrays = {key: self._read(key) for key in self._kinds}
        controller = arrays[CONTROLLER]
        return Episode(
            frames={camera: arrays[IMAGE + camera] for camera in self._spec.cameras},
            state=arrays[STATE],
            action=arrays[ACTION],
            reward=rewards(self.steps, success),
            controller=controller,
            segment=segments(controller),
            task=task,
            fps=self._spec.fps,
            source=source,
            success=success,
            judged_by=judged_by,
        )

    def _observed(self, seen: Seen) -> dict[str, np.ndarray]:
        return {STATE: seen.state, **{IMAGE + camera: seen.frames[camera] for camera in self._spec.cameras}}

    def _read(self, key: str) -> np.ndarray:
        shape, dtype = self._kinds[key]
        return np.fromfile(self._folder / key, dtype).reshape(-1, *shape)

    def _end(self) -> None:
        if self._thread.is_alive():
            self._rows.put(None)
            self._thread.join()
        for file in self._files.values():
            file.close()

    def _write_on(self) -> None:
        while (row := self._rows.get()) is not None:
            try:
                for key, value in row.items():
                    self._files[key].write(np.ascontiguousarray(value).tobytes())
            except OSError as error:
                self._failed = error
                return


def set_aside(folder: Path) -> list[dict[str, Any]]:
    """Move what killed and failed runs left open to ``interrupted`` and return, of each, its folder, facts and whole steps."""
    found = []
    for leftover in sorted((folder / OPEN).glob("*")):
        target = folder / INTERRUPTED / leftover.name
        target.parent.mkdir(exist_ok=True)
        leftover.rename(target)
        facts, size = {}, 0
        if (target / FACTS).is_file():
            try:
                facts = json.loads((target / FACTS).read_text())
            except json.JSONDecodeError:
                facts = {}
        if (target / CONTROLLER).is_file():
            size = (target / CONTROLLER).stat().st_size  # one byte a step, written after everything else of it
        found.append({"folder": str(target), "seed": facts.get("seed"), "steps": size})
    return found
