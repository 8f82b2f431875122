"""``robowm imagine``: let a policy act inside a world model and keep its successes."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("imagine", "robowm.imagine.rollouts:run", helpers=("device", "env"))


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
