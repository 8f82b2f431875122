"""The environment that a robomimic file was recorded in: its ``env_args``, in the form of robosuite 1.4 or of today, as a RobosuiteEnv."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py

from robowm.errors import UserError
from sim.robosuite.env import RobosuiteEnv
from sim.robosuite.simulator import FPS, controller_config
from sim.robosuite.tasks import TASKS, robosuite

ROBOSUITE = 1  # what robomimic calls this kind of environment
RENAMED = {"damping_ratio": "damping"}  # what robosuite 1.4 calls it
ONLY = ("input_max", "input_min", "output_max", "output_min", "kp", "damping_ratio", "impedance_mode", "uncouple_pos_ori", "interpolation")
UNLIMITED = ("position_limits", "orientation_limits")  # the controllers of the public files have none


def env_of_file(path: str | Path, **settings: Any) -> RobosuiteEnv:
    """Return the environment of the robomimic HDF5 file ``path``, see ``settings_of``; ``settings`` are more keywords of RobosuiteEnv."""
    if not Path(path).is_file():
        raise UserError(f"{path} does not exist; expected a robomimic HDF5 file")
    try:
        with h5py.File(path, "r") as file:
            text = file["data"].attrs["env_args"]
    except (OSError, KeyError) as error:
        raise UserError(f"{path} names no environment ({error}); expected the attribute env_args of its group data") from error
    return RobosuiteEnv(**{**settings_of(text, str(path)), **settings})


def settings_of(env_args: str | Mapping[str, Any], where: str = "env_args") -> dict[str, Any]:
    """Translate ``env_args`` (JSON or a mapping) to keywords of RobosuiteEnv: "task" and "action_kind".

    Controllers of robosuite 1.4 (a flat ``OSC_POSE`` with ``control_delta``, in the world's frame) and of 1.5 (parts of a ``BASIC`` one)
    are understood. Warns where the file's robosuite is not the installed one: its physics and controllers differ, so recorded actions need
    not succeed again. Raises UserError for whatever else RobosuiteEnv does not play: other tasks, robots, rates or controllers.
    """
    try:
        env_args = json.loads(env_args) if isinstance(env_args, str | bytes) else env_args
        name, kwargs = env_args["env_name"], env_args["env_kwargs"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{where}: env_args is not what robomimic writes ({error!r}); it holds env_name, type and env_kwargs") from error
    if env_args.get("type", ROBOSUITE) != ROBOSUITE:
        raise UserError(f"{where} was recorded in an environment of type {env_args['type']}, not in robosuite (type {ROBOSUITE})")
    tasks = {task.env: short for short, task in TASKS.items()}
    if name not in tasks:
        raise UserError(f"{where} was recorded in robosuite's {name}; environments here: {', '.join(tasks)}")
    _check(where, "control_freq", kwargs.get("control_freq", FPS), FPS)
    robots = kwargs.get("robots", "Panda")
    _check(where, "robots", [robots] if isinstance(robots, str) else list(robots), ["Panda"] * TASKS[tasks[name]].arms)
    installed, recorded = robosuite().__version__, _version(env_args)
    if recorded != installed:
        warnings.warn(
            f"{where} was recorded with robosuite {recorded}, installed is {installed}: its recorded actions need not succeed again",
            stacklevel=2,
        )
    return {"task": tasks[name], "action_kind": _action_kind(kwargs.get("controller_configs"), where)}


def _version(env_args: Mapping[str, Any]) -> str:
    """Return the robosuite of a file; those of before 1.4.1 do not tell theirs."""
    return str(env_args.get("env_version") or env_args["env_kwargs"].get("env_version") or "of unknown version")


def _action_kind(configs: Any, where: str) -> str:
    """Return what kind of actions the controllers take; UserError where they are not RobosuiteEnv's."""
    kinds = set()
    for config in configs if isinstance(configs, list) else [configs or {"type": "OSC_POSE"}]:
        parts = config.get("body_parts")
        arm = (parts.get("right") or parts["arms"]["right"]) if parts else config
        _check(where, "controller type", arm.get("type"), "OSC_POSE")
        ours = controller_config("delta")["body_parts"]["right"]
        for key in ONLY:
            _check(where, key, _plain(arm.get(key, arm.get(RENAMED.get(key), ours[key]))), _plain(ours[key]))
        for key in UNLIMITED:
            _check(where, key, arm.get(key), None)
        if parts:
            _check(where, "input_ref_frame", arm.get("input_ref_frame"), "world")
        kinds.add(arm.get("input_type") or ("delta" if arm.get("control_delta", True) else "absolute"))
    if len(kinds) > 1:
        raise UserError(f"{where}: its robots take different kinds of actions ({', '.join(sorted(kinds))}); RobosuiteEnv gives them one")
    return kinds.pop()


def _plain(value: Any) -> Any:
    """Return numbers as floats, and a list of one number again and again as that number, as robosuite reads them."""
    if isinstance(value, list):
        value = [float(number) for number in value]
        return value[0] if len(set(value)) == 1 else value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _check(where: str, key: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise UserError(f"{where} was recorded with {key}={found!r}; RobosuiteEnv plays {key}={expected!r} alone")
