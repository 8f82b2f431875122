"""``robowm evaluate-imagined``: execute imagined episodes in the simulator."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("evaluate-imagined", "robowm.evaluation.imagined_vs_real:run")


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
