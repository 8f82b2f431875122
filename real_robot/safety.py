"""What stands between anything that chooses an action and the motors: limits as pure functions, and a small guard that remembers.

    A entries of an action: position targets in the robot's own units (degrees, metres, percent), or velocities where a name ends in .vel

A command is moved into the workspace and then towards its target no faster than the velocity and acceleration limits allow, braking early
enough to stop where it should; a robot that stands outside the workspace comes back just as gently. Anything that is not a finite action of
A numbers, an observation that is too old, a released dead-man key and the emergency stop all end in the same command: stay where you are.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from robowm.errors import UserError, nearest

VELOCITY_SUFFIX = ".vel"  # ends the names of actions that are velocities: they stand still at 0
TOLERANCE = 1e-9


class Why(StrEnum):
    """What the guard did to a command."""

    WORKSPACE = "workspace"  # moved inside
    VELOCITY = "velocity"  # slowed down
    ACCELERATION = "acceleration"  # made smoother
    BAD_ACTION = "bad_action"  # NaN, infinity or a wrong number of entries: held
    NO_ACTION = "no_action"  # nobody gave one (a plan that ran out): held
    STALE = "stale"  # the observation is too old: held
    DEAD_MAN = "dead_man"  # the key is not held down: held
    STOPPED = "stopped"  # emergency stop: held


HELD = frozenset({Why.BAD_ACTION, Why.NO_ACTION, Why.STALE, Why.DEAD_MAN, Why.STOPPED})


@dataclass(frozen=True)
class Limits:
    """Limits of each entry of an action; infinity where there is none."""

    low: np.ndarray  # f64 [A]
    high: np.ndarray  # f64 [A]
    velocity: np.ndarray  # f64 [A], units a second
    acceleration: np.ndarray  # f64 [A], units a second squared

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        *,
        workspace: Mapping[str, Sequence[float]] | None = None,
        velocity: float | Mapping[str, float] | None = None,
        acceleration: float | Mapping[str, float] | None = None,
    ) -> Limits:
        """Return the limits of actions called ``names`` from a config: numbers for all entries or a mapping from names, None for none.

        A name may be given without its suffix (``shoulder_pan`` for ``shoulder_pan.pos``). UserError for one that the robot does not have,
        for an empty workspace and for a limit that is not above 0.
        """
        box = _spread("safety.workspace", workspace or {}, names, (-math.inf, math.inf))
        low, high = (np.array([float(pair[side]) for pair in box]) for side in (0, 1))
        if (bad := np.flatnonzero(~(low < high))).size:
            raise UserError(f"safety.workspace of {names[bad[0]]} is [{low[bad[0]]:g}, {high[bad[0]]:g}]; the first must be the smaller")
        found = []
        for key, given in (("velocity", velocity), ("acceleration", acceleration)):
            given = dict.fromkeys(names, given) if isinstance(given, int | float) else given or {}
            values = np.array([float(v) for v in _spread(f"safety.{key}", given, names, math.inf)])
            if (bad := np.flatnonzero(~(values > 0))).size:
                raise UserError(f"safety.{key} of {names[bad[0]]} is {values[bad[0]]:g}; it must be above 0, or null for none")
            found.append(values)
        return cls(low, high, *found)


def _spread(key: str, given: Mapping[str, object], names: Sequence[str], default: object) -> list:
    """Return the value of each of ``names``."""
    known = {short(name): name for name in names} | {name: name for name in names}
    for name in given:
        if name not in known:
            raise UserError(f"{key} names {name!r}, which is no action of this robot; {nearest(name, known)}")
    full = {known[name]: value for name, value in given.items()}
    return [full.get(name, default) for name in names]


def short(name: str) -> str:
    """Return the name of an action or a state without lerobot's suffix: shoulder_pan for shoulder_pan.pos."""
    return name.rpartition(".")[0] if "." in name else name


def is_action(target: object, size: int) -> bool:
    """Tell whether ``target`` is ``size`` finite numbers."""
    return isinstance(target, np.ndarray) and target.shape == (size,) and bool(np.isfinite(target).all())


def limited(
    target: np.ndarray, last: np.ndarray, speed: np.ndarray, limits: Limits, dt: float
) -> tuple[np.ndarray, np.ndarray, frozenset[Why]]:
    """Return the next command f64 [A] on the way to ``target`` f64 [A], its speed f64 [A], and what was limited.

    ``last`` f64 [A] is the command before, ``dt`` seconds ago, and ``speed`` f64 [A] how fast it moved. A target that stands still is
    reached without overshooting. Inside the workspace nothing leaves it, whatever the other limits say; from outside the way leads back
    into it, within the other limits.
    """
    inside = np.clip(target, limits.low, limits.high)
    why = {Why.WORKSPACE} if (np.abs(inside - target) > TOLERANCE).any() else set()
    way = inside - last
    wanted = way / dt
    capped = np.clip(wanted, -limits.velocity, limits.velocity)
    if (np.abs(capped - wanted) > TOLERANCE).any():
        why.add(Why.VELOCITY)
    bounded = np.isfinite(limits.acceleration)
    a = np.where(bounded, limits.acceleration, 1.0)
    braking = _braking(np.abs(way), a * dt, dt)
    smooth = np.where(bounded, np.clip(np.clip(capped, -braking, braking), speed - a * dt, speed + a * dt), capped)
    if (np.abs(smooth - capped) > TOLERANCE).any():
        why.add(Why.ACCELERATION)
    command = np.clip(last + smooth * dt, np.minimum(limits.low, last), np.maximum(limits.high, last))  # never farther out
    return command, (command - last) / dt, frozenset(why)


def _braking(distance: np.ndarray, change: np.ndarray, dt: float) -> np.ndarray:
    """Return the highest speed f64 [A] from which ``distance`` f64 [A] can be covered while braking by at most ``change`` f64 [A] a step.

    In m steps at speeds v, v - change, ... v - (m - 1) change, of which the last is at most ``change``.
    """
    steps = np.maximum(np.ceil((np.sqrt(1 + 8 * distance / (change * dt)) - 1) / 2), 1)
    return distance / (steps * dt) + change * (steps - 1) / 2


def standing(names: Sequence[str], pose: np.ndarray) -> np.ndarray:
    """Return the command f64 [A] that means "stay at ``pose``": positions as they are, velocities 0."""
    return np.where([name.endswith(VELOCITY_SUFFIX) for name in names], 0.0, pose)


@dataclass(frozen=True)
class Command:
    """What goes to the motors, and why it is not what was asked for."""

    action: np.ndarray  # f64 [A]
    why: frozenset[Why]

    @property
    def held(self) -> bool:
        """Tell whether the robot was told to stay where it is."""
        return bool(self.why & HELD)


@dataclass
class Guard:
    """Turns targets into commands, one each ``dt`` seconds. Not for several threads at once."""

    names: Sequence[str]  # A
    limits: Limits
    dt: float  # seconds between commands
    stale_s: float  # an observation older than this moves nothing
    _last: np.ndarray | None = field(default=None, init=False)
    _speed: np.ndarray | None = field(default=None, init=False)

    def start(self, pose: np.ndarray) -> None:
        """Begin at the measured ``pose`` f64 [A], standing."""
        self._last, self._speed = standing(self.names, np.asarray(pose, float)), np.zeros(len(self.names))

    def command(self, target: np.ndarray | None, age: float, *, enabled: bool = True) -> Command:
        """Return the command for ``target`` f64 [A] (None: nobody gave one) decided on an observation ``age`` seconds old.

        ``enabled`` is False while the dead-man key is up. ``start`` must have been called.
        """
        if self._last is None:
            raise RuntimeError("Guard.start was not called")
        if not enabled:
            return self.hold(Why.DEAD_MAN)
        if not age <= self.stale_s:  # also where the age is NaN
            return self.hold(Why.STALE)
        if target is None:
            return self.hold(Why.NO_ACTION)
        if not is_action(target, len(self.names)):
            return self.hold(Why.BAD_ACTION)
        self._last, self._speed, why = limited(np.asarray(target, float), self._last, self._speed, self.limits, self.dt)
        return Command(self._last, why)

    def hold(self, why: Why) -> Command:
        """Return the command that stays at the last one."""
        return self._stay(self._last, why)

    def stop(self, pose: np.ndarray | None) -> Command:
        """Return the command of an emergency stop: towards ``pose`` f64 [A], where the robot is known to be now, so that it lets go.

        No farther from the last command, or out of the workspace, than any command may be that begins from standing; None: at the last one.
        """
        if pose is None:
            return self.hold(Why.STOPPED)
        low, high = np.minimum(self.limits.low, self._last), np.maximum(self.limits.high, self._last)
        box = replace(self.limits, low=low, high=high)
        return self._stay(limited(np.asarray(pose, float), self._last, np.zeros(len(self.names)), box, self.dt)[0], Why.STOPPED)

    def _stay(self, place: np.ndarray, why: Why) -> Command:
        self._last, self._speed = standing(self.names, place), np.zeros(len(self.names))
        return Command(self._last, frozenset({why}))


@dataclass
class DeadMan:
    """A key that must be held down for the policy to move the robot; a terminal repeats a held key, so signs of life must not stop."""

    needed: bool
    patience_s: float  # seconds without a sign after which the key counts as released
    _sign: float = field(default=-math.inf, init=False)

    def sign(self, now: float) -> None:
        """Note a sign of life."""
        self._sign = now

    def held(self, now: float) -> bool:
        """Tell whether the robot may move."""
        return not self.needed or now - self._sign <= self.patience_s


class EmergencyStop:
    """A latch that any thread may set; once set, nothing but standing still is sent until the program is started again."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.reason = ""

    def set(self, reason: str) -> bool:
        """Set it and return whether it was not set before."""
        first = not self.event.is_set()
        if first:
            self.reason = reason
        self.event.set()
        return first

    @property
    def is_set(self) -> bool:
        return self.event.is_set()
