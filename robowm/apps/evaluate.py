"""``robowm evaluate``: measure a policy on paired start states."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("evaluate", "robowm.evaluation.policies:run", helpers=("device",))


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
