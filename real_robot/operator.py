"""Who watches the robot: says when to take over, whether it succeeded, and stops it. A person at the keyboard here; scripts elsewhere."""

from __future__ import annotations

import os
import queue
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from real_robot.keys import LOST, Keys, release, terminal
from real_robot.labels import Event, Mode

if TYPE_CHECKING:
    from real_robot.arm import Arm

KEYS = {
    "space": Event.TAKE_OVER,
    "enter": Event.CORRECT,
    "b": Event.REWIND,
    "y": Event.SUCCESS,
    "n": Event.FAILURE,
    "x": Event.DISCARD,
    "z": Event.QUIT,
    "1": Event.QUALITY_1,
    "2": Event.QUALITY_2,
    "3": Event.QUALITY_3,
    "4": Event.QUALITY_4,
    "5": Event.QUALITY_5,
}
STOP_KEYS = ("esc", "!")
HOLD_KEY = "h"  # held down: the dead-man key
HELP = """keys
  esc or !   EMERGENCY STOP            h (held)  dead-man key, where safety.dead_man=true
  space      take over / give back     enter     recovery <-> correction       b  rewind / stop there
  y n        success, failure          x         discard, record again         z  quit, the same command goes on
  1 ... 5    how good it was, before y or n
"""


class Operator(Protocol):
    """Whoever watches. ``judge`` goes into the record as who judged."""

    judge: str

    def open(self, arm: Arm) -> None:
        """Begin; an emergency stop calls ``arm.stop(reason)`` from whatever thread hears of it."""
        ...

    def prepare(self, seed: int) -> None:
        """Begin to set up the scene of start ``seed``; Event.READY follows when it is done."""
        ...

    def poll(self, mode: Mode, step: int) -> list[Event]:
        """Return what was said since the last call, while ``mode`` has control and ``step`` steps are recorded."""
        ...

    def time_is_up(self) -> list[Event]:
        """Return what there is to say now that the episode has reached its last step; one of ENDS must come, here or by ``poll`` later."""
        ...

    def holding(self) -> bool:
        """Tell whether there was a sign of the dead-man key since the last call."""
        ...

    def let_go(self, why: str) -> None:
        """Wait until the robot may be disconnected, after which its motors may let go; ``why`` says what ended the program early."""
        ...

    def close(self) -> None:
        """End."""
        ...


class KeyboardOperator:
    """A person at the terminal (see HELP); between episodes the teleoperator moves the arm, and enter begins the next."""

    judge = "human"

    def __init__(self, keys: Keys | None = None) -> None:
        self._keys, self._own = keys, keys is None
        self._said: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._preparing = self._held = False
        self._arm: Arm | None = None

    def open(self, arm: Arm) -> None:
        """See Operator."""
        self._arm = arm
        self._keys = self._keys or terminal()
        self._keys.listen(self._heard)
        print(HELP, file=sys.stderr, flush=True)

    def prepare(self, seed: int) -> None:
        """See Operator."""
        self._drain()
        self._preparing = True
        print(f"\repisode {seed}: set up the scene, then press enter", file=sys.stderr, flush=True)

    def poll(self, mode: Mode, step: int) -> list[Event]:
        """See Operator."""
        return self._drain()

    def time_is_up(self) -> list[Event]:
        """See Operator."""
        print("\rtime is up: y success, n failure, x record again", file=sys.stderr, flush=True)
        return []

    def holding(self) -> bool:
        """See Operator."""
        held, self._held = self._held, False
        return held

    def let_go(self, why: str) -> None:
        """See Operator: enter says so, or a signal: Ctrl-C, or kill where the terminal is gone."""
        text = f"\r{why}\nThe robot holds its place. Support it, then press enter (or: kill {os.getpid()}): its motors may let go."
        with suppress(OSError):  # of a terminal that is gone
            print(text, file=sys.stderr, flush=True)
        self._preparing = True
        self._drain()
        while Event.READY not in self._drain():
            time.sleep(0.02)

    def close(self) -> None:
        """See Operator."""
        if self._own:
            release()

    def _drain(self) -> list[Event]:
        found = []
        while not self._said.empty():
            found.append(self._said.get())
        return found

    def _heard(self, key: str) -> None:
        if key == LOST:
            self._arm.stop("the terminal is gone")
        elif key in STOP_KEYS:
            self._arm.stop(f"key {key}")
        elif key == HOLD_KEY:
            self._held = True
        elif key == "enter" and self._preparing:
            self._preparing = False
            self._said.put(Event.READY)
        elif key in KEYS:
            self._said.put(KEYS[key])
