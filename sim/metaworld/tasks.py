"""What tasks there are, by Meta-World's names ("drawer-open") or Python's ("drawer_open"), and the one place that imports Meta-World."""

from __future__ import annotations

import importlib
from types import ModuleType

from robowm.errors import UserError, nearest

OBSERVATION = 39  # numbers of Meta-World's own observation
SENTENCES = {  # as in the Meta-World data sets, so that a policy trained on those knows them
    "assembly": "Pick up a nut and place it onto a peg",
    "basketball": "Dunk the basketball into the basket",
    "bin-picking": "Grasp the puck from one bin and place it into another bin",
    "box-close": "Grasp the cover and close the box with it",
    "button-press": "Press a button",
    "button-press-topdown": "Press a button from the top",
    "button-press-topdown-wall": "Bypass a wall and press a button from the top",
    "button-press-wall": "Bypass a wall and press a button",
    "coffee-button": "Push a button on the coffee machine",
    "coffee-pull": "Pull a mug from a coffee machine",
    "coffee-push": "Push a mug under a coffee machine",
    "dial-turn": "Rotate a dial 180 degrees",
    "disassemble": "Pick a nut out of a peg",
    "door-close": "Close a door with a revolving joint",
    "door-lock": "Lock the door by rotating the lock clockwise",
    "door-open": "Open a door with a revolving joint",
    "door-unlock": "Unlock the door by rotating the lock counter-clockwise",
    "drawer-close": "Push and close a drawer",
    "drawer-open": "Open a drawer",
    "faucet-close": "Rotate the faucet clockwise",
    "faucet-open": "Rotate the faucet counter-clockwise",
    "hammer": "Hammer a screw on the wall",
    "hand-insert": "Insert the gripper into a hole",
    "handle-press": "Press a handle down",
    "handle-press-side": "Press a handle down sideways",
    "handle-pull": "Pull a handle up",
    "handle-pull-side": "Pull a handle up sideways",
    "lever-pull": "Pull a lever down 90 degrees",
    "peg-insert-side": "Insert a peg sideways",
    "peg-unplug-side": "Unplug a peg sideways",
    "pick-out-of-hole": "Pick up a puck from a hole",
    "pick-place": "Pick and place a puck to a goal",
    "pick-place-wall": "Pick a puck, bypass a wall and place the puck",
    "plate-slide": "Slide a plate into a cabinet",
    "plate-slide-back": "Get a plate from the cabinet",
    "plate-slide-back-side": "Get a plate from the cabinet sideways",
    "plate-slide-side": "Slide a plate into a cabinet sideways",
    "push": "Push the puck to a goal",
    "push-back": "Push the puck to a goal",
    "push-wall": "Bypass a wall and push a puck to a goal",
    "reach": "Reach a goal position",
    "reach-wall": "Bypass a wall and reach a goal",
    "shelf-place": "Pick and place a puck onto a shelf",
    "soccer": "Kick a soccer into the goal",
    "stick-pull": "Grasp a stick and pull a box with the stick",
    "stick-push": "Grasp a stick and push a box using the stick",
    "sweep": "Sweep a puck off the table",
    "sweep-into": "Sweep a puck into a hole",
    "window-close": "Push and close a window",
    "window-open": "Push and open a window",
}


def task_name(name: str) -> str:
    """Return Meta-World's spelling of ``name`` ("drawer-open"); UserError with the nearest task where there is none."""
    spelt = name.replace("_", "-")
    if spelt not in SENTENCES:
        raise UserError(f"no Meta-World task {name!r}: {nearest(spelt, SENTENCES)}")
    return spelt


def metaworld(module: str) -> ModuleType:
    """Return Meta-World's ``module``; UserError where Meta-World is not installed."""
    try:
        return importlib.import_module(f"metaworld.{module}")
    except ModuleNotFoundError as error:
        raise UserError(f"Meta-World's tasks need {error.name}, which is not installed; run: pip install -e '.[metaworld]'") from error
