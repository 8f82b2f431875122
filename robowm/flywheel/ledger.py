"""What has been done: one small file a stage, so that several flywheels on different units can share one output folder.

A stage is done if it was asked the same (its composed config) of the same inputs (their artefacts' fingerprints), and its result is still
the one it left. Anything else in its folder is moved aside, never deleted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from robowm import __version__
from robowm.artefacts import ARTEFACT, fingerprint_json, write_json

LEDGER = "ledger"
WITHOUT_EFFECT = ("output_dir", "tracker", "trusted", "size")  # top-level keys that cannot change a result (size: see what it set)
NOWHERE = ("device", "workers")  # keys that cannot change a result wherever they stand


@dataclass(frozen=True)
class Entry:
    """A stage's request and, once it is done, its result."""

    request: str  # fingerprint of the composed config
    inputs: Mapping[str, str]  # {needed stage: fingerprint of its result}
    output: str | None = None  # fingerprint of the result; None: begun
    seconds: float = 0.0  # of all attempts together

    def asks_the_same(self, other: Entry) -> bool:
        return (self.request, dict(self.inputs)) == (other.request, dict(other.inputs))


def request_of(verb: str, config: Mapping[str, Any]) -> str:
    """Return the fingerprint of what a stage is asked, over everything that can change its result."""
    effective = _effective({key: value for key, value in config.items() if key not in WITHOUT_EFFECT})
    return fingerprint_json({"verb": verb, "config": effective, "version": __version__})


def _effective(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _effective(item) for key, item in value.items() if key not in NOWHERE}
    return [_effective(item) for item in value] if isinstance(value, list | tuple) else value


class Ledger:
    """Entries under ``output_dir/ledger``, results under ``output_dir/<stage>``."""

    def __init__(self, output_dir: Path) -> None:
        self._root = output_dir

    def folder(self, name: str) -> Path:
        """Return where the stage ``name`` writes."""
        return self._root / name

    def read(self, name: str) -> Entry | None:
        """Return the entry of a stage, or None where it never began."""
        path = self._path(name)
        return Entry(**json.loads(path.read_text())) if path.is_file() else None

    def is_done(self, name: str, wanted: Entry) -> bool:
        """Tell whether the result in the stage's folder answers ``wanted``."""
        entry = self.read(name)
        return entry is not None and entry.output is not None and entry.asks_the_same(wanted) and entry.output == self._result(name, entry)

    def begin(self, name: str, wanted: Entry) -> Path | None:
        """Note that a stage starts; return where its folder's foreign contents went, or None if it is fresh or resumes its own work."""
        entry = self.read(name)
        own = entry is not None and entry.asks_the_same(wanted) and entry.output is None
        aside = None if own else self._move_aside(name)
        write_json(self._path(name), asdict(replace(wanted, seconds=entry.seconds if own else 0.0)))
        return aside

    def finish(self, name: str, seconds: float) -> str:
        """Note that a stage is done and return the fingerprint of its result."""
        entry = self.read(name)
        output = self._result(name, entry)
        write_json(self._path(name), asdict(replace(entry, output=output, seconds=round(entry.seconds + seconds, 1))))
        return output

    def results(self) -> dict[str, str]:
        """Return {stage: fingerprint of its result} of all stages that are done, also other flywheels'."""
        root = self._root / LEDGER
        names = sorted(str(path.relative_to(root).with_suffix("")) for path in root.rglob("*.json"))
        return {name: entry.output for name in names if (entry := self.read(name)) and entry.output is not None}

    def unfinished(self, stages_of: Callable[[str], Iterable[str]], gathered: str) -> list[str]:
        """Return the units here that lack the result of one of their stages, ``stages_of(unit)``."""
        results, root = self.results(), self._root / LEDGER
        units = sorted(path.name for path in root.iterdir() if path.name != gathered) if root.is_dir() else []
        return [unit for unit in units if any(f"{unit}/{stage}" not in results for stage in stages_of(unit))]

    def _path(self, name: str) -> Path:
        return self._root / LEDGER / f"{name}.json"

    def _result(self, name: str, entry: Entry) -> str | None:
        """Return the artefact's fingerprint; a folder without one (a report) counts as the answer to its request."""
        folder = self.folder(name)
        if not folder.is_dir():
            return None
        if (folder / ARTEFACT).is_file():
            return json.loads((folder / ARTEFACT).read_text())["fingerprint"]
        return fingerprint_json({"request": entry.request, "inputs": dict(entry.inputs)})

    def _move_aside(self, name: str) -> Path | None:
        folder = self.folder(name)
        if not folder.is_dir() or not any(folder.iterdir()):
            return None
        aside = folder.with_name(f"{folder.name}.old-{time.strftime('%Y%m%d-%H%M%S')}")
        number = 1
        while aside.exists():
            number += 1
            aside = aside.with_name(f"{folder.name}.old-{time.strftime('%Y%m%d-%H%M%S')}-{number}")
        folder.rename(aside)
        return aside
