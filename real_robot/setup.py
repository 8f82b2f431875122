"""What collect, deploy and replay share: from the keys of a config to a connected robot with its crew."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from real_robot.arm import Arm, Seen, Sent
from real_robot.clock import Clock
from real_robot.devices import connect, make_robot, make_teleop, one_line, pose_of, spec_of
from real_robot.operator import Operator
from real_robot.pilots import Chunking, PolicyPilot, TeleopPilot
from real_robot.rewind import Familiar
from real_robot.safety import DeadMan, Limits
from real_robot.session import Crew, Rules
from robowm.data.spec import STATE, StoreSpec
from robowm.data.store import EpisodeStore
from robowm.errors import UserError


@dataclass(frozen=True)
class Safety:
    """Keys of ``safety``. Units are the robot's own, a second where they are rates; names as the robot has them, .pos may be left out."""

    workspace: Mapping[str, Sequence[float]] | None = None  # {name: [low, high]}
    velocity: float | Mapping[str, float] | None = None
    acceleration: float | Mapping[str, float] | None = None
    stale_s: float = 0.3  # an observation older than this, any of its pictures too, moves nothing
    dead_man: bool = False  # True: a policy moves the robot only while the key is held down
    dead_man_s: float = 0.6  # seconds without a sign after which the key is up; terminals wait half a second before they repeat a key
    hold_limit_s: float = 5.0  # held in a row for so long, the episode is given up

    def __post_init__(self) -> None:
        for name in ("stale_s", "dead_man_s", "hold_limit_s"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise UserError(f"safety.{name}={value}; it is a number of seconds above 0")


@dataclass(frozen=True)
class Body:
    """A connected robot and the people around it."""

    arm: Arm
    crew: Crew
    home: np.ndarray | None  # f64 [A] where episodes begin; None: wherever the scene puts it
    hold_limit_s: float  # see Safety


def plan_body(robot: Mapping[str, Any], *, fps: float, image_size, gripper) -> tuple[Any, StoreSpec]:
    """Return the robot, not connected, and how its episodes are recorded."""
    device = make_robot(robot)
    return device, spec_of(device, fps=fps, image_size=image_size, gripper=gripper)


@contextmanager
def body(
    device: Any,
    spec: StoreSpec,
    *,
    teleop: Mapping[str, Any] | None,
    policy: Any | None,
    chunking: Chunking,
    operator: Operator,
    safety: Safety,
    task: str,
) -> Iterator[Body]:
    """Connect everything, in an order in which nothing moves before its guard stands, and take it down again whatever happens.

    Meanwhile SIGTERM, and SIGHUP of a terminal that was closed, interrupt as Ctrl-C does.
    """
    limits = Limits.of(spec.action_names, workspace=safety.workspace, velocity=safety.velocity, acceleration=safety.acceleration)
    with ExitStack() as stack:
        stack.enter_context(_interrupted_by(signal.SIGTERM, signal.SIGHUP))
        person = None
        if teleop is not None:
            leader = make_teleop(teleop)
            person = TeleopPilot(leader, spec)
            connect(leader, "teleop")
            stack.callback(lambda: leader.is_connected and leader.disconnect())
        clock = Clock(getattr(device, "speed", 1.0))
        arm = stack.enter_context(Arm(device, spec, limits, stale_s=safety.stale_s, clock=clock))
        stack.callback(operator.close)
        operator.open(arm)
        pilot = None
        if policy is not None:
            pilot = PolicyPilot(policy, chunking, task, len(spec.action_names))
            stack.callback(pilot.close)
        home = None if hasattr(device, "reset_scene") else pose_of(arm.fresh().state, spec)
        crew = Crew(operator, person, pilot, DeadMan(safety.dead_man and pilot is not None, safety.dead_man_s))
        try:
            yield Body(arm, crew, home, safety.hold_limit_s)
        except BaseException as error:  # whatever it was, the arm must not fall
            with suppress(UserError):  # a robot that takes no command any more
                arm.rest()
            operator.let_go("interrupted" if isinstance(error, KeyboardInterrupt) else one_line(error))
            raise


@contextmanager
def _interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Make ``signals`` raise KeyboardInterrupt, as SIGINT does; in a thread that is not the main one nothing changes.

    A terminal that closes may hang up twice (the kernel and the shell): only the first counts, the wait for somebody to support the robot
    goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    heard = [number for number in signals if signal.getsignal(number) != signal.SIG_IGN]  # nohup's wish is respected
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def load(policy: Mapping[str, Any], spec: StoreSpec, task: str) -> Any | None:
    """Return the policy of ``policy.path`` (None: no policy), one episode at a time, checked against what the robot shows and the task."""
    settings = dict(policy)
    path = settings.pop("path", None)
    if path is None:
        return None
    from robowm.policy.lerobot import load_policy

    loaded = load_policy(path, infer_width=1, spec=spec.to_json(), **settings)
    if task and loaded.tasks and task not in loaded.tasks:
        raise UserError(f"policy {path} was trained on {', '.join(map(repr, loaded.tasks))}, task is {task!r}; give the same sentence")
    return loaded


def rules(*, max_steps: int, rewind_s: float, familiar_to: str | Path | None, safety: Safety, spec: StoreSpec) -> Rules:
    """Return the rules of episodes; ``familiar_to`` is a store of demonstrations whose states a rewind drives back to."""
    familiar = None
    if familiar_to is not None:
        store = EpisodeStore.open(familiar_to)
        if store.spec.state_names != spec.state_names:
            raise UserError(
                f"familiar_to={familiar_to} has states {store.spec.state_names}, the robot {spec.state_names}; use its own demonstrations"
            )
        if len(store) < 2:
            raise UserError(f"familiar_to={familiar_to} holds {len(store)} episode(s); at least two demonstrations say what is familiar")
        familiar = Familiar([store.rows(i, STATE) for i in range(len(store))])
    return Rules(max_steps=max_steps, rewind_steps=max(round(rewind_s * spec.fps), 1), hold_limit_s=safety.hold_limit_s, familiar=familiar)


def watcher(view: bool, spec: StoreSpec):
    """Return what shows every tick in Rerun, None where ``view`` is off. UserError where Rerun is not installed."""
    if not view:
        return None
    from lerobot.utils.visualization_utils import init_visualization, log_visualization_data

    try:
        init_visualization("rerun", session_name="robowm")
    except ImportError as error:
        raise UserError(
            f"view=true needs Rerun ({' '.join(str(error).split())[:120]}): pip install rerun-sdk, or leave view out"
        ) from error

    def watch(seen: Seen, sent: Sent) -> None:
        state = dict(zip(spec.state_names, map(float, seen.state), strict=True))
        action = dict(zip(spec.action_names, map(float, sent.action), strict=True))
        log_visualization_data("rerun", observation={**state, **seen.frames}, action=action)

    return watch
