"""lerobot's robots and teleoperators from a config node, and what a store needs to know of them. Nothing of lerobot is loaded before.

A node holds ``type`` and the keys of lerobot's config class of that type: {type: so101_follower, port: /dev/ttyACM0, id: black,
cameras: {front: {type: opencv, index_or_path: 0, width: 640, height: 480, fps: 30}}}.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from real_robot.safety import VELOCITY_SUFFIX
from robowm.data.spec import StoreSpec
from robowm.errors import UserError, nearest

if TYPE_CHECKING:
    from lerobot.robots import Robot
    from lerobot.teleoperators import Teleoperator

log = logging.getLogger(__name__)
PLUGINS = ("real_robot.sim_robot",)
READ_ERRORS = (TimeoutError, ConnectionError, OSError, RuntimeError, ValueError)  # what lerobot's devices raise while they are in use
EXTRA = "pip install -e '.[robots]'"


def make_robot(node: Mapping[str, Any]) -> Robot:
    """Return the robot of a config node, not connected yet. UserError for an unknown type or key, or a driver that is not installed."""
    from lerobot.robots import RobotConfig, make_robot_from_config

    return _make("robot", node, RobotConfig, make_robot_from_config, ("lerobot.cameras", "lerobot.robots"))


def make_teleop(node: Mapping[str, Any]) -> Teleoperator:
    """Return the teleoperator of a config node, not connected yet. Errors as in ``make_robot``."""
    from lerobot.teleoperators import TeleoperatorConfig, make_teleoperator_from_config

    return _make("teleop", node, TeleoperatorConfig, make_teleoperator_from_config, ("lerobot.teleoperators",))


def _make(key: str, node: Mapping[str, Any], base: type, make: Any, packages: Sequence[str]) -> Any:
    import draccus

    _register(packages)
    kind = node.get("type")
    known = sorted(base.get_known_choices())
    if kind not in known:
        raise UserError(f"{key}.type is {kind!r}; {nearest(str(kind), known)}; known: {', '.join(known)}")
    _check_keys(key, node, base.get_choice_class(kind))
    try:
        return make(draccus.decode(base, {name: value for name, value in node.items() if value is not None}))
    except (draccus.utils.DecodingError, TypeError, ValueError, ImportError, UserError) as error:
        if (said := _user_error(error)) is not None:
            raise said from error
        text = " ".join(str(error).split())
        missing = isinstance(error, ImportError) or "not installed" in text
        hint = f"; install its driver: {EXTRA}" if missing else "; see lerobot's config class of this type for its keys"
        raise UserError(f"{key} {kind!r} cannot be made: {text[:300]}{hint}") from error


def _user_error(error: BaseException | None) -> UserError | None:
    """Return what one of our own settings had to say, below what draccus made of it."""
    while error is not None and not isinstance(error, UserError):
        error = error.__cause__ or error.__context__
    return error


def _register(packages: Sequence[str]) -> None:
    """Import whatever registers robots, teleoperators and cameras: lerobot's own that can be imported here, plug-ins, and ours."""
    from lerobot.utils.import_utils import register_third_party_plugins

    for package in packages:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            with contextlib.suppress(ImportError):  # a driver that is not installed here
                importlib.import_module(module.name)
    for plugin in PLUGINS:
        importlib.import_module(plugin)
    register_third_party_plugins()


def _check_keys(key: str, node: Mapping[str, Any], config: type) -> None:
    known = {field.name for field in fields(config)} if is_dataclass(config) else set()
    for name in node:
        if name != "type" and known and name not in known:
            raise UserError(f"{key}.{name} is no key of {node['type']!r}; {nearest(name, known)}")


def connect(device: Any, what: str) -> None:
    """Connect a robot or teleoperator; what goes wrong becomes one line."""
    try:
        device.connect()
    except (OSError, RuntimeError, ImportError, ValueError) as error:  # ConnectionError and lerobot's own are among them
        raise UserError(
            f"{what} {device.name!r} does not connect: {one_line(error)}; check power, cable, port and that nothing else uses it"
        ) from error


def one_line(error: BaseException) -> str:
    """Return what ``error`` says in one line that is not too long; its type where it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def spec_of(robot: Robot, *, fps: float, image_size: Sequence[int] | None, gripper: Sequence[float] | None) -> StoreSpec:
    """Return how episodes of ``robot`` are recorded: its own names, cameras scaled to ``image_size`` (height, width) where given.

    Depth cameras are left out. Every action must be measured too, under the same name, so that the guard knows where "here" is; velocities
    (names ending in .vel) stand still at 0 and need not be.
    """
    observed, actions = robot.observation_features, list(robot.action_features)
    states = [name for name, kind in observed.items() if kind is float]
    cameras = {name: tuple(shape[:2]) for name, shape in observed.items() if isinstance(shape, tuple) and shape[-1] == 3}
    if missing := [name for name in actions if name not in states and not name.endswith(VELOCITY_SUFFIX)]:
        raise UserError(f"robot {robot.name!r} does not measure {missing[0]!r}; only robots that measure what they are told can be guarded")
    return StoreSpec(
        cameras={name: tuple(image_size or size) for name, size in cameras.items()},
        state_names=states,
        action_names=actions,
        environment_state_names=None,
        fps=float(fps),
        action_kind="absolute",
        gripper=gripper,
    )


def pose_of(state: np.ndarray, spec: StoreSpec) -> np.ndarray:
    """Return where the robot is, as an action f64 [A], from its state f32 [S]; 0 for velocities that are not measured."""
    index = {name: i for i, name in enumerate(spec.state_names)}
    return np.array([state[index[name]] if name in index else 0.0 for name in spec.action_names], float)


def scaled(frame: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return ``frame`` uint8 [h, w, 3] at ``size`` (height, width), by area averaging."""
    if frame.shape[:2] == tuple(size):
        return frame
    import cv2

    return cv2.resize(frame, (size[1], size[0]), interpolation=cv2.INTER_AREA)
