"""``robowm train-policy``: clone a policy from stores of episodes."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("train-policy", "robowm.policy.train:run", nodes=("policy",))


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
