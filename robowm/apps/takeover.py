"""``robowm takeover``: run a policy that a person takes over from when it is stuck, and record who acted when."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("takeover", "robowm.evaluation.collect:run", helpers=("device",))


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
