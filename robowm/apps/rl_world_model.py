"""``robowm rl-world-model``: post-train a world model on its own rollouts."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("rl-world-model", "robowm.rl.post_train:run")


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
