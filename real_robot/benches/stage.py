"""What the stages share: a finished one is found again, rows are results rows, scripts run as their own processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from robowm.artefacts import claim, fingerprint_json, write_artefact, write_json
from robowm.errors import UserError
from robowm.types import EvalRow

TASK = "real_robot/sim"
SUMMARY = "bench.json"  # as report/bench.py reads it
DRAWS = 2000


def stage(folder: Path, config: Mapping[str, Any], work: Callable[[Path], Sequence[EvalRow]], notes: Sequence[str]) -> None:
    """Fill ``folder`` with the rows of ``work``, unless they are there already."""
    folder.mkdir(parents=True, exist_ok=True)
    if claim(folder, kind="bench", inputs={}, config=config) is not None:
        return
    rows = work(folder)
    write_json(folder / SUMMARY, {"rows": [asdict(row) for row in rows], "pairs": [], "notes": list(notes)})
    write_artefact(
        folder, kind="bench", fingerprint=fingerprint_json([dict(config), [asdict(row) for row in rows]]), inputs={}, config=config
    )


def counted(arm: str, metric: str, value: float, n: int) -> EvalRow:
    """Return a row of something that was counted in full: its interval is itself."""
    return EvalRow(TASK, arm, metric, float(value), float(value), float(value), n)


def quantile_row(arm: str, metric: str, values: Sequence[float], share: float, seed: int = 0) -> EvalRow:
    """Return the quantile ``share`` of ``values`` with its percentile bootstrap interval; ``share`` 1 is the largest, counted in full."""
    array = np.asarray(values, float)
    value = float(np.quantile(array, share))
    if share == 1:
        return counted(arm, metric, value, len(array))
    draws = np.random.default_rng(seed).choice(array, (DRAWS, len(array)))
    low, high = np.quantile(np.quantile(draws, share, axis=1), [0.025, 0.975])
    return EvalRow(TASK, arm, metric, value, min(float(low), value), max(float(high), value), len(array))


def command(script: str, *words: str) -> list[str]:
    """Return the command line of ``real_robot.<script>`` or of the robowm verb ``script``."""
    module = [f"real_robot.{script}"] if script in ("collect", "deploy", "replay") else ["robowm.apps.cli", script]
    return [sys.executable, "-m", *module, *map(str, words)]


def must(words: Sequence[str]) -> None:
    """Run a command to its end; UserError where it fails."""
    done = subprocess.run(words, check=False)
    if done.returncode:
        raise UserError(
            f"{' '.join(words[2:5])} ... ended with {done.returncode} (see above); put it right and run the bench again, it resumes"
        )
