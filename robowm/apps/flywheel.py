"""``robowm flywheel``: run all stages of an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App(
    "flywheel",
    "robowm.flywheel.loop:run",
    helpers=("device", "tracking", "study", "command_line", "arms", "pairs", "notes", "subject"),
    nodes=("stages", "final"),  # what they start makes the objects
    claims=False,
)


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
