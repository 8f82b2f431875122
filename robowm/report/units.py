"""Keeps what a report needs of one unit of a long study in one small file, so that units may run on other days and machines.

    python -m robowm.report.units keep outputs/loop_small push-0 results/units/loop_small
    python -m robowm.report.units restore results/units/loop_small outputs/loop_small

A kept unit is a zip of the JSON files of its artefacts and of its ledger, and of what the report asked for; weights, episodes and videos
stay behind. The same unit gives
the same bytes.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from robowm.errors import UserError
from robowm.report.folders import COMMAND, GATHERED, LEDGER, find_artefacts

MEASURED = ("evaluation", "world_model_evaluation", "imagined_vs_real")  # kinds whose lines are kept; of others the record alone
RECORD = ("artefact.json", COMMAND)
SUFFIXES = (".json", ".jsonl")
NO_RESULT = ("progress.json", "request.json")
EPOCH = (1980, 1, 1, 0, 0, 0)


def keep(folder: Path, unit: str, target: Path) -> Path:
    """Write ``target/<unit>.zip`` from the finished unit ``folder/unit`` and return its path."""
    artefacts = find_artefacts(folder / unit)
    if not artefacts:
        raise UserError(f"{folder / unit} holds no finished stage; run the unit first")
    files = [path for artefact in artefacts for path in sorted(artefact.folder.iterdir()) if _wanted(path, artefact.kind)]
    files += sorted((folder / LEDGER / unit).glob("*.json"))
    files += sorted((folder / GATHERED).glob(f"*/{COMMAND}"))  # which arms and pairs were asked for
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{unit}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as kept:
        for file in files:
            kept.writestr(zipfile.ZipInfo(str(file.relative_to(folder)), EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return path


def restore(source: Path, folder: Path) -> list[str]:
    """Unpack every kept unit in ``source`` that ``folder`` does not have, and return their names."""
    found = sorted(source.glob("*.zip"))
    if not found:
        raise UserError(f"{source} holds no kept unit (*.zip)")
    missing = [path for path in found if not (folder / path.stem).exists()]
    for path in missing:
        with zipfile.ZipFile(path) as kept:
            kept.extractall(folder)
    return [path.stem for path in missing]


def _wanted(path: Path, kind: str) -> bool:
    if path.suffix not in SUFFIXES or path.name in NO_RESULT:
        return False
    return kind in MEASURED or path.name in RECORD


def main(words: Sequence[str]) -> int:
    """Run ``keep <folder> <unit> <target>`` or ``restore <source> <folder>``."""
    try:
        match list(words):
            case ["keep", folder, unit, target]:
                print(keep(Path(folder), unit, Path(target)))
            case ["restore", source, folder]:
                print(" ".join(restore(Path(source), Path(folder))) or "nothing to restore")
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
