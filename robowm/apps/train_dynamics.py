"""``robowm train-dynamics``: train latent dynamics on a frozen policy encoder."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("train-dynamics", "robowm.guidance.dynamics:run")


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
