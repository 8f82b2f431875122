"""``robowm doctor``: say what works on this machine and what to install."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.apps.harness import App, launch

APP = App("doctor", "robowm.apps.checks:run", claims=False)


def main(argv: Sequence[str]) -> int:
    """Run the verb with Hydra's command line and return the exit code."""
    return launch(APP, argv)
