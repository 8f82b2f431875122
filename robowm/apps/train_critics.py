"""``robowm train-critics``: train viability and efficiency critics on a frozen policy encoder."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("train-critics", "robowm.habc.train:run")


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
