"""Keeps what a report needs of one unit of a long study in one small file, so that units may run on other days and machines.

    python -m robowm.report.units keep outputs/loop_small push-0 results/units/loop_small
    python -m robowm.report.units restore results/units/loop_small outputs/loop_small

A kept unit is a zip of the JSON files of its artefacts and of its ledger, and of what the report asked for; weights, episodes and videos
stay behind. The same unit gives the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from robowm.errors import UserError
from robowm.report.folders import COMMAND, GATHERED, LEDGER, UNKNOWN, find_artefacts

MEASURED = ("evaluation", "world_model_evaluation", "imagined_vs_real", "phases")  # kinds whose lines are kept; of others the record alone
RECORD = ("artefact.json", COMMAND)
SUFFIXES = (".json", ".jsonl")
NO_RESULT = ("progress.json", "request.json")
EPOCH = (1980, 1, 1, 0, 0, 0)


def keep(folder: Path, unit: str, target: Path) -> Path:
    """Write ``target/<unit>.zip`` from the finished unit ``folder/unit`` and return its path."""
    artefacts = find_artefacts(folder / unit)
    if not artefacts:
        raise UserError(f"{folder / unit} holds no finished stage; run the unit first")
    entries = sorted((folder / LEDGER / unit).glob("*.json"))
    if begun := [path.stem for path in entries if json.loads(path.read_text())["output"] is None]:
        raise UserError(
            f"{folder / unit} is not finished: {', '.join(begun)} began and did not end; run the same command again, it resumes"
        )
    files = [path for artefact in artefacts for path in sorted(artefact.folder.iterdir()) if _wanted(path, artefact.kind)]
    files += entries
    files += sorted((folder / GATHERED).glob(f"*/{COMMAND}"))  # which arms and pairs were asked for
    target.mkdir(parents=True, exist_ok=True)
    path, temporary = target / f"{unit}.zip", target / f".{unit}.zip.{os.getpid()}"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as kept:
        for file in files:
            kept.writestr(zipfile.ZipInfo(str(file.relative_to(folder)), EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
    os.replace(temporary, path)  # a kill before this leaves no half a unit that would be taken for a whole one
    return path


def restore(source: Path, folder: Path) -> list[str]:
    """Unpack every kept unit in ``source`` that ``folder`` does not have, and return their names."""
    found = sorted(source.glob("*.zip"))
    if not found:
        raise UserError(f"{source} holds no kept unit (*.zip)")
    missing = [path for path in found if not (folder / path.stem).exists()]
    for path in missing:
        _unpack(path, folder)
    return [path.stem for path in missing]


def _unpack(path: Path, folder: Path) -> None:
    """Unpack one kept unit; its own folder appears last and at once, so that a kill in between is made good by the next call."""
    aside = folder / f".{path.stem}.{os.getpid()}"
    try:
        with zipfile.ZipFile(path) as kept:
            kept.extractall(aside)
    except (zipfile.BadZipFile, OSError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise UserError(f"{path} cannot be unpacked ({error}); delete it and keep or run that unit again") from error
    for file in sorted(aside.rglob("*.json*")):
        os.utime(file, (UNKNOWN, UNKNOWN))  # when its stage ended is not kept
        name = file.relative_to(aside)
        if name.parts[0] != path.stem:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, folder / name)
    os.replace(aside / path.stem, folder / path.stem)
    shutil.rmtree(aside)


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
