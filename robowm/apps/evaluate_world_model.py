"""``robowm evaluate-world-model``: measure a world model on held-out episodes."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("evaluate-world-model", "robowm.evaluation.world_models:run", helpers=("device",))


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
