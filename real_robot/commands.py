"""The command line of these scripts: robowm's own, where robot.* and teleop.* take whatever keys lerobot's classes have."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from robowm.apps.explain import choices
from robowm.apps.harness import App as _App
from robowm.apps.harness import config_folder, launch

FREE = ("robot", "teleop")  # nodes whose keys lerobot checks


@dataclass(frozen=True)
class App(_App):
    """A script of this package."""

    program: str = "real_robot"


def opened(words: Sequence[str]) -> list[str]:
    """Return the command line as Hydra takes it: keys below robot and teleop need not be in a config (++), and a type chooses its file.

    ``robot.type=so101_follower`` alone means ``robot=so101_follower``; a type without a file of its own means ``robot=any``.
    """
    found = []
    for word in words:
        key, _, value = word.partition("=")
        group = key.partition(".")[0]
        if key == f"{group}.type" and group in FREE and not any(other.startswith(f"{group}=") for other in words):
            found.append(f"{group}={value if value in choices(config_folder(), group) else 'any'}")
        found.append(f"++{word}" if key.startswith(tuple(f"{name}." for name in FREE)) and "=" in word else word)
    return found


def main_of(app: App, argv: Sequence[str] | None = None) -> int:
    """Run ``app`` with the command line ``argv`` (default: this program's) and return the exit code."""
    return launch(app, opened(sys.argv[1:] if argv is None else argv))
