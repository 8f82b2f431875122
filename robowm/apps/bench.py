"""``robowm bench``: thorough comparisons; ``suite=`` names what is compared."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("bench", "robowm.evaluation.bench.world_model:run", nodes=("world_model",), helpers=("device",))


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
