"""``-m``: one job for each combination of values, each in its own folder; a table at the end, non-zero if one failed."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

OUTPUT = re.compile(r"^\+*output_dir=(.*)$")


@dataclass(frozen=True)
class Outcome:
    """How one job ended."""

    code: int  # exit code it would have had alone
    line: str  # what to tell the user, empty when it is done
    seconds: float
    output_dir: str
    overrides: list[str]


def asks_for_sweep(argv: Sequence[str]) -> bool:
    """Tell whether the command line asks for several jobs."""
    return any(word in ("-m", "--multirun") for word in argv)


class Sweep:
    """Where the jobs of one sweep write, and how they ended.

    Jobs write to ``<output_dir>/<job number>``, so the same command resumes each; if the given ``output_dir`` differs from job to job
    (a sweep over it, or an interpolation in it), it is taken as it stands.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        given = [match[1] for word in argv if (match := OUTPUT.match(word))]
        own = given and re.search(r"[,$(]", given[-1])
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        chosen = [word.partition("=")[2] for word in argv if word.startswith("hydra.sweep.dir=")]
        self.folder = Path(chosen[-1] if chosen else f"multirun/{stamp}" if own or not given else given[-1].strip("'\""))
        self.output_varies = bool(own)
        self.lost = ""  # why the launcher gave up, if it did
        for old in (self.folder / "status").glob("*.json"):
            old.unlink()

    def hydra_overrides(self) -> list[str]:
        """Return the overrides that put Hydra's own files where ours are."""
        return [f"hydra.sweep.dir={_quoted(self.folder)}", f"hydra.sweep.subdir={'.' if self.output_varies else '${hydra.job.num}'}"]

    def output_dir(self, cfg: DictConfig, settings: Any) -> Path:
        """Return the folder of the job that ``cfg`` and Hydra's ``settings`` belong to."""
        return Path(cfg.output_dir) if self.output_varies else self.folder / str(settings.job.num)

    def report(self) -> int:
        """Print the table and return the exit code."""
        outcomes = self.outcomes()
        if not outcomes and self.lost:
            print(f"no job started ({self.lost}); choose launcher=local or launcher=processes where there is no Slurm", file=sys.stderr)
            return 2
        print(f"\n{'job':>4} {'status':<7} {'seconds':>8}  folder, overrides")
        for number, outcome in outcomes.items():
            status = "done" if outcome.code == 0 else "FAILED"
            print(f"{number:>4} {status:<7} {outcome.seconds:>8.1f}  {outcome.output_dir}  {' '.join(outcome.overrides)}")
            if outcome.line:
                print(f"{'':>23}{outcome.line}")
        failed = sum(outcome.code != 0 for outcome in outcomes.values())
        print(
            f"{len(outcomes) - failed} of {len(outcomes)} jobs done" + (f"; a job ended without a word: {self.lost}" if self.lost else "")
        )
        return 1 if failed or self.lost or not outcomes else 0

    def outcomes(self) -> dict[int, Outcome]:
        """Return {job number: outcome} of the jobs that ended, also those on other machines."""
        files = sorted((self.folder / "status").glob("*.json"), key=lambda path: int(path.stem))
        return {int(path.stem): Outcome(**json.loads(path.read_text())) for path in files}


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "\\'") + "'"
