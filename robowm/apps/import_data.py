"""``robowm import``: read data that others made into a store; ``format=`` names the reader."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("import", "robowm.data.lerobot:run_lerobot")


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
