"""What tasks there are, and the one place that imports robosuite."""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass, field
from types import ModuleType

from robowm.errors import UserError, nearest

ONE_ARM = {"external": "agentview", "wrist": "robot0_eye_in_hand"}
TWO_ARMS = {
    "external": "shouldercamera0",
    "wrist": "robot0_eye_in_hand",
    "external1": "shouldercamera1",
    "wrist1": "robot1_eye_in_hand",
}


@dataclass(frozen=True)
class Task:
    """One of robomimic's benchmark tasks."""

    env: str  # robosuite's name
    sentence: str
    truth: int  # E, numbers of robomimic's "object" observation
    arms: int = 1  # Panda robots
    cameras: dict[str, str] = field(default_factory=lambda: dict(ONE_ARM))  # our names: robosuite's, those that robomimic trains on


TASKS = {
    "lift": Task("Lift", "Lift the cube", 10),
    "can": Task("PickPlaceCan", "Put the can into its bin", 14),
    "square": Task("NutAssemblySquare", "Put the square nut onto the square peg", 14),
    "transport": Task("TwoArmTransport", "Hand the hammer from the closed bin over to the other bin, and bin the trash", 41, 2, TWO_ARMS),
    "tool_hang": Task("ToolHang", "Put the frame into its stand and hang the tool on it", 44, cameras={**ONE_ARM, "external": "sideview"}),
}


def load_task(name: str) -> Task:
    """Return the task ``name``; UserError with the nearest one where there is none."""
    if name not in TASKS:
        raise UserError(f"no robosuite task {name!r}: {nearest(name, TASKS)}")
    return TASKS[name]


def robosuite(module: str = "") -> ModuleType:
    """Return robosuite or its ``module``; UserError where robosuite is not installed."""
    quiet = logging.root.manager.disable
    logging.disable(logging.WARNING)  # importing it advises about files and extras that nothing here needs
    try:
        found = importlib.import_module(f"robosuite.{module}".rstrip("."))
    except ModuleNotFoundError as error:
        raise UserError(f"robosuite's tasks need {error.name}, which is not installed; run: pip install -e '.[robosuite]'") from error
    finally:
        logging.disable(quiet)
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)  # it announces every file that it reads
    return found
