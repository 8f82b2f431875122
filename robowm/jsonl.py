"""Lines of JSON that are appended while work goes on and read again by the run that resumes it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robowm.errors import UserError


def append_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Append ``lines`` and make them durable."""
    try:
        with path.open("ab") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; free some space and run again, what is finished is kept") from error


def recover_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of ``path`` (none where it does not exist), after cutting off one that a kill left half-written."""
    if not path.is_file():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return [json.loads(line) for line in whole.splitlines()]
