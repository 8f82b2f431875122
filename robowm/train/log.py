"""Training records: a JSONL file always, Weights & Biases where asked for. A tracker that fails becomes one warning, never a stop."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol
from warnings import warn

from robowm.artefacts import write_text
from robowm.errors import UserError

LOG = "log.jsonl"


class Tracker(Protocol):
    """Something beside the local file that is told the numbers."""

    def start(self, folder: Path, config: Mapping[str, Any]) -> None: ...

    def log(self, values: Mapping[str, float], step: int) -> None: ...

    def finish(self) -> None: ...


class JsonlLog:
    """One JSON object a line, each with its ``step``. Opening at step s keeps the lines up to s, so a resumed run repeats none."""

    def __init__(self, path: Path, resume_at: int) -> None:
        kept = [line for line in read_log(path) if line["step"] <= resume_at]
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._path = path
        self._file = path.open("a")

    def write(self, values: Mapping[str, Any]) -> None:
        """Append one line and hand it to the operating system."""
        try:
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()
        except OSError as error:
            raise UserError(f"cannot write {self._path}: {error.strerror}; free some space and run again, it resumes") from error

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a log; a last line cut off by a kill is left out."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


class Wandb:
    """Weights & Biases. ``mode="offline"`` needs no account and writes under the run's folder. A resumed run continues the same record."""

    def __init__(self, *, project: str = "robowm", mode: Literal["online", "offline"] = "offline", name: str | None = None) -> None:
        self._project, self._mode, self._name = project, mode, name
        self._run: Any = None

    def start(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb

        identity = folder / "wandb_id.txt"
        if not identity.is_file():
            write_text(identity, wandb.util.generate_id())
        self._run = wandb.init(
            project=self._project,
            mode=self._mode,
            name=self._name or folder.name,
            dir=str(folder),
            config=dict(config),
            id=identity.read_text(),
            resume="allow",
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({f"train/{name}": value for name, value in values.items()}, step=step)

    def finish(self) -> None:
        self._run.finish()


class SafeTracker:
    """Passes calls on to ``tracker`` until one raises; then warns once and goes quiet. None is quiet from the start."""

    def __init__(self, tracker: Tracker | None) -> None:
        self._tracker = tracker

    def start(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._call("start", folder, config)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._call("log", values, step)

    def finish(self) -> None:
        self._call("finish")

    def _call(self, method: str, *arguments: Any) -> None:
        if self._tracker is None:
            return
        try:
            getattr(self._tracker, method)(*arguments)
        except Exception as error:  # noqa: BLE001  (a tracker runs foreign code over a network; the record is the local file)
            warn(f"tracking stopped ({type(error).__name__}: {error}); the record goes on in {LOG}", stacklevel=3)
            self._tracker = None
