"""``robowm train-world-model``: train an action-conditioned video model on stores."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("train-world-model", "robowm.world_model.train:run", nodes=("world_model",))


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
