"""A connected robot behind the guard: fresh observations without waiting for slow ones, commands that are always within limits.

Two threads touch the robot: the reader, which asks for an observation when told to, and whoever sends. One lock keeps them apart, as buses
of motors want: lerobot's cannot be written while they are read. So a command, and an emergency stop too, goes out at once or right after
the read that is running; no read begins before a stop is sent. Reads are as short as the bus allows: cameras run in threads of their own
below lerobot's Robot, which hands out the latest picture without waiting. Those longer than a control period are counted and said.
An observation that does not come in time leaves the last one in place, which grows old, and the guard holds the robot.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from real_robot.clock import Clock
from real_robot.devices import READ_ERRORS, connect, one_line, pose_of, scaled
from real_robot.safety import Command, EmergencyStop, Guard, Limits, Why
from robowm.data.spec import StoreSpec
from robowm.errors import UserError

log = logging.getLogger(__name__)
READS_AT_START = 3  # of which the fastest says whether the robot is slow to read; the very first may warm something up
JUST_NOW = 1.5  # control periods after which a pose is no longer where the robot is: a tick may be late by half of one
GIVE_UP_S = 10.0  # wall seconds without a first observation


@dataclass(frozen=True)
class Seen:
    """One observation."""

    at: float  # clock seconds at which the state was asked for
    state: np.ndarray  # f32 [S]
    frames: dict[str, np.ndarray]  # {camera: uint8 [h, w, 3]}
    frame_at: dict[str, float]  # clock seconds at which each picture was taken; ``at`` where the camera does not say

    def age(self, now: float) -> float:
        """Return the age in seconds of its oldest part."""
        return now - min(self.at, *self.frame_at.values()) if self.frame_at else now - self.at


@dataclass(frozen=True)
class Sent:
    """One command that the robot took."""

    action: np.ndarray  # f32 [A], as the robot says that it was sent
    command: Command
    at: float  # clock seconds when the robot had it


class Arm:
    """Use as a context manager: connects, reads, and disconnects."""

    def __init__(self, robot: Any, spec: StoreSpec, limits: Limits, *, stale_s: float, clock: Clock) -> None:
        self.robot, self.spec, self.clock = robot, spec, clock
        self.period = 1 / spec.fps
        self.estop = EmergencyStop()
        self.stopped: Sent | None = None  # what an emergency stop sent
        self.read_errors: Counter[str] = Counter()
        self.read_s: list[float] = []  # clock seconds that each read took; an episode begins with none
        self.guard = Guard(spec.action_names, limits, self.period, stale_s)
        self._bus, self._guarded = threading.Lock(), threading.Lock()
        self._changed = threading.Condition()
        self._seen: Seen | None = None
        self._wanted = self._answered = 0
        self._closing = self._stopping = False
        self._reader = threading.Thread(target=self._read_on, name="observations", daemon=True)

    def __enter__(self) -> Arm:
        connect(self.robot, "robot")
        self._reader.start()
        try:
            self.guard.start(pose_of(self.fresh().state, self.spec))
            self._warn_of_slow_reads()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading and disconnect."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._reader.join(timeout=2.0)
        if self.robot.is_connected:
            self.robot.disconnect()

    # ------------------------------------------------------------------ seeing

    def fetch(self, patience_s: float) -> Seen:
        """Ask for an observation and return it, or the last one if it does not come within ``patience_s`` of the clock's seconds."""
        with self._changed:
            if self._wanted == self._answered:
                self._wanted += 1
            number = self._wanted
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answered >= number, patience_s / self.clock.speed)
            if self._seen is None:
                raise UserError(f"robot {self.robot.name!r} shows nothing ({self._said()}); check its cameras and cables")
            return self._seen

    def fresh(self, after: float = -np.inf) -> Seen:
        """Return an observation that was taken, pictures too, later than ``after``. UserError where none comes."""
        until = time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            with self._changed:
                self._wanted = self._answered + 1
                number = self._wanted
                self._changed.notify_all()
                self._changed.wait_for(lambda number=number: self._answered >= number, 0.5)
                seen = self._seen
            if seen is not None and min(seen.at, *seen.frame_at.values(), np.inf) > after:
                return seen
            time.sleep(0.002)
        raise UserError(f"robot {self.robot.name!r} gave no fresh observation within {GIVE_UP_S:g} s ({self._said()}); check its cameras")

    def _warn_of_slow_reads(self) -> None:
        for _ in range(READS_AT_START):
            self.fresh()
        if (fastest := min(self.read_s)) > self.period:
            log.warning(
                "robot %r takes %.0f ms to be read, a control period is %.0f ms: commands wait for it, an emergency stop too; "
                "choose a lower fps or a faster bus",
                *(self.robot.name, fastest * 1e3, self.period * 1e3),
            )

    def _said(self) -> str:
        return "; ".join(f"{text} ({count} times)" for text, count in self.read_errors.most_common(2)) or "no error was raised"

    def _read_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or (self._wanted > self._answered and not self._stopping))
                if self._closing:
                    return
                number = self._wanted
            seen = self._read()
            with self._changed:
                self._seen = seen or self._seen
                self._answered = number if seen is not None else self._answered
                self._changed.notify_all()
            if seen is None:
                time.sleep(0.002)

    def _read(self) -> Seen | None:
        try:
            with self._bus:
                at = self.clock.now()
                try:
                    found = self.robot.get_observation()
                finally:
                    self.read_s.append(self.clock.now() - at)
                stamps = {name: getattr(camera, "latest_timestamp", None) for name, camera in getattr(self.robot, "cameras", {}).items()}
            state = np.array([found[name] for name in self.spec.state_names], np.float32)
            if not np.isfinite(state).all():
                raise ValueError(f"the measured {self.spec.state_names[int(np.flatnonzero(~np.isfinite(state))[0])]} is not finite")
            frames = {name: scaled(np.asarray(found[name]), size) for name, size in self.spec.cameras.items()}
        except READ_ERRORS as error:
            self.read_errors[f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"] += 1
            return None
        frame_at = {name: at if stamps.get(name) is None else self.clock.of_stamp(stamps[name]) for name in frames}
        return Seen(at, state, frames, frame_at)

    # ------------------------------------------------------------------ moving

    def begin(self, seen: Seen) -> None:
        """Take the robot's pose in ``seen`` as where its commands go on from: at the start of an episode, or after it was moved by hand."""
        with self._guarded:
            self.guard.start(pose_of(seen.state, self.spec))

    def send(self, target: np.ndarray | None, seen: Seen, *, enabled: bool = True) -> Sent:
        """Send the guard's command for ``target`` f64 [A] (None: nobody gave one), which was decided on ``seen``."""
        with self._guarded, self._bus:  # the age is that at which the command leaves, after a read that was running
            if self.estop.is_set:
                return self._transmit(self.guard.hold(Why.STOPPED))
            return self._transmit(self.guard.command(target, seen.age(self.clock.now()), enabled=enabled))

    def rest(self) -> None:
        """Let the robot stand still."""
        if self.robot.is_connected:
            self.send(None, self.fetch(0.0))

    def stop(self, reason: str) -> Sent | None:
        """Emergency stop from any thread: stand still at once or right after the read that is running, for good. None: it did so before.

        The robot stands where it is, where that was seen just now, else at the last command: what was seen earlier lies behind it.
        """
        if not self.estop.set(reason):
            return None
        self._stopping = True
        try:
            with self._guarded, self._bus:
                seen = self._seen
                current = seen is not None and self.clock.now() - seen.at <= JUST_NOW * self.period
                self.stopped = self._transmit(self.guard.stop(pose_of(seen.state, self.spec) if current else None))
                return self.stopped
        finally:
            with self._changed:
                self._stopping = False
                self._changed.notify_all()

    def _transmit(self, command: Command) -> Sent:
        """Send ``command``; the caller holds the bus."""
        values = {name: float(value) for name, value in zip(self.spec.action_names, command.action, strict=True)}
        try:
            sent = self.robot.send_action(values)
        except READ_ERRORS as error:
            raise UserError(f"robot {self.robot.name!r} took no command: {one_line(error)}; the finished episodes are safe") from error
        action = np.array([sent[name] if isinstance(sent, dict) and name in sent else values[name] for name in values], np.float32)
        return Sent(action, command, self.clock.now())
