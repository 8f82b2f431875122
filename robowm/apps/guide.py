"""``robowm guide``: run a guided policy and record its successes."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("guide", "robowm.evaluation.collect:run", helpers=("device",))


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
