"""Finds the finished artefacts under a run's folder and reads what the report needs from each. Nothing here computes an interval."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robowm.artefacts import ARTEFACT, read_artefact
from robowm.errors import UserError
from robowm.report.study import Stage

LEDGER, COMMAND = "ledger", "command.json"  # as the flywheel and the command line write them
GATHERED = "all"  # unit of the stages that look at all others, as a report does
UNKNOWN = 0.0  # time of change of a ledger's entry that came from elsewhere
IDLE_S = 60.0  # seconds that may pass between the stages of one go
_MOVED_ASIDE = ".old-"  # folders whose request changed
_CLOSED = ("episodes", "sidecars", "checkpoints", "videos", "interrupted", "pretrained_model")  # hold no artefacts, and many files


@dataclass(frozen=True)
class Artefact:
    """A finished folder and its record."""

    folder: Path
    name: str  # relative to where the search began
    record: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return self.record["kind"]


def find_artefacts(folder: Path | str) -> list[Artefact]:
    """Return every finished artefact under ``folder``, in the order of their names."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist; expected the output folder of a flywheel or of an evaluation")
    found = []
    for root, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if name not in _CLOSED and not name.startswith(".") and _MOVED_ASIDE not in name)
        if ARTEFACT in files:
            path = Path(root)
            found.append(Artefact(path, str(path.relative_to(folder)), read_artefact(path)))
    return found


def of_kind(artefacts: Iterable[Artefact], *kinds: str) -> list[Artefact]:
    """Return the artefacts of the given kinds."""
    return [artefact for artefact in artefacts if artefact.kind in kinds]


def read_json(path: Path) -> Any:
    """Return the content of a JSON file that a finished stage wrote."""
    if not path.is_file():
        raise UserError(f"{path} does not exist although its folder is finished; run the stage that writes it again")
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not valid JSON ({error}); delete its folder and run the stage again") from error


def provenance_of(artefacts: Sequence[Artefact]) -> list[dict[str, Any]]:
    """Return folder, kind, fingerprint, inputs and commit of each artefact."""
    return [
        {
            "folder": artefact.name,
            "kind": artefact.kind,
            "fingerprint": artefact.record["fingerprint"],
            "inputs": dict(artefact.record["inputs"]),
            "commit": artefact.record["made_with"]["commit"],
        }
        for artefact in artefacts
    ]


def stages_of(folder: Path | str) -> list[Stage]:
    """Return the finished stages of a flywheel's units, with their starts if they ran in one go (nothing between them stood idle)."""
    root = Path(folder) / LEDGER
    found = []
    for path in sorted(root.rglob("*.json")):
        entry, unit = read_json(path), str(path.parent.relative_to(root))
        if entry["output"] is not None and unit != GATHERED:
            found.append(Stage("" if unit == "." else unit, path.stem, path.stat().st_mtime - entry["seconds"], entry["seconds"]))
    if not found:
        return []
    began, ended = min(stage.start for stage in found), max(stage.start + stage.seconds for stage in found)
    known = all(path.stat().st_mtime != UNKNOWN for path in root.rglob("*.json"))
    in_one_go = known and ended - began <= sum(stage.seconds for stage in found) + IDLE_S
    return [replace(stage, start=stage.start - began if in_one_go else None) for stage in found]


def configurations(artefacts: Sequence[Artefact]) -> str:
    """Return the command and the whole configuration of each stage, of stages that differ in the unit alone the first one's, as text."""
    found: dict[str, Any] = {}
    for artefact in artefacts:
        if kept := recorded_command(artefact.folder):
            found.setdefault(artefact.folder.name, (artefact.name, kept))
    blocks = [
        f"# {name}: robowm {' '.join([kept['verb'], *kept['overrides']])}\n{json.dumps(kept['config'], indent=1)}"
        for name, kept in found.values()
    ]
    return "\n\n".join(blocks)


def recorded_report(folder: Path | str) -> dict[str, Any]:
    """Return the configuration of the report that a flywheel made as its own stage, or an empty dict."""
    for path in sorted(Path(folder).glob(f"*/*/{COMMAND}")):
        if (kept := read_json(path))["verb"] == "report":
            return kept["config"]
    return {}


def recorded_command(folder: Path | str) -> dict[str, Any]:
    """Return what the command line kept beside a run: ``{verb, overrides, config}``, or an empty dict."""
    path = Path(folder) / COMMAND
    return read_json(path) if path.is_file() else {}
