"""``robowm rollout``: run a policy and record every episode in a store."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("rollout", "robowm.evaluation.collect:run", helpers=("device",))


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
