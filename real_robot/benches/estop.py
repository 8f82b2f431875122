"""How long an emergency stop takes: from the byte of the key in the terminal to the command that the robot took.

Once with reads as fast as they are, once with slow ones, which a stop has to wait for: buses are not written while they are read.
"""

from __future__ import annotations

import os
import pty
import threading
import time
from pathlib import Path

import numpy as np

from real_robot.arm import Arm
from real_robot.benches.collection import FPS, SIZE
from real_robot.benches.stage import counted, quantile_row
from real_robot.clock import Clock
from real_robot.devices import make_robot, make_teleop, spec_of
from real_robot.keys import Keys
from real_robot.operator import KeyboardOperator
from real_robot.pilots import TeleopPilot
from real_robot.rates import Pace
from real_robot.safety import EmergencyStop, Limits
from real_robot.session import FETCH_SHARE
from robowm.errors import UserError
from robowm.jsonl import append_lines
from robowm.types import EvalRow

PATIENCE_S = 5.0
SLOW, SLOW_READ_S = "estop_slow_reads", 0.1
NOTE = f"{SLOW}: a read of the robot takes {SLOW_READ_S * 1e3:g} ms, and a stop waits for the one that is running."


def measure(folder: Path, presses: int) -> list[EvalRow]:
    """Press escape ``presses`` times at random moments of a loop at 30 Hz with two 128 px cameras, twice, and return the rows."""
    rows = []
    for arm, read_s in (("estop", 0.0), (SLOW, SLOW_READ_S)):
        milliseconds = [seconds * 1e3 for seconds in _presses(presses, read_s)]
        append_lines(folder / "presses.jsonl", [{"arm": arm, "ms": value} for value in milliseconds])
        shares = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        rows += [quantile_row(arm, f"estop_ms@{name}", milliseconds, share) for name, share in shares]
        rows.append(counted(arm, "estop_beyond_period", sum(value > 1e3 / FPS for value in milliseconds), presses))
    return rows


def _presses(presses: int, read_s: float) -> list[float]:
    """Return how many seconds each press took, where a read of the robot takes ``read_s`` seconds."""
    robot = make_robot({"type": "robowm_sim", "image_size": SIZE, "faults": {"read_s": read_s}})
    spec = spec_of(robot, fps=FPS, image_size=None, gripper=None)
    teleop = make_teleop({"type": "robowm_expert", "sets_up_scenes": True})
    teleop.connect()
    master, slave = pty.openpty()
    keys, rng = Keys(slave), np.random.default_rng(11)
    try:
        with Arm(robot, spec, Limits.of(spec.action_names), stale_s=0.3, clock=Clock()) as arm:
            KeyboardOperator(keys).open(arm)
            return [_press(arm, TeleopPilot(teleop, spec), master, rng.uniform(0.1, 0.4)) for _ in range(presses)]
    finally:
        keys.close()
        os.close(master)
        os.close(slave)


def _press(arm: Arm, person: TeleopPilot, terminal: int, after: float) -> float:
    """Drive the robot, press the key ``after`` seconds and return how long it took, in seconds."""
    arm.estop, arm.stopped = EmergencyStop(), None
    loop = threading.Thread(target=_drive, args=(arm, person))
    loop.start()
    time.sleep(after)
    pressed = arm.clock.now()
    os.write(terminal, b"\x1b")
    loop.join(PATIENCE_S)
    if arm.stopped is None:
        raise UserError("the emergency stop did not come through")
    return arm.stopped.at - pressed


def _drive(arm: Arm, person: TeleopPilot) -> None:
    seen = arm.fresh()
    arm.begin(seen)
    person.take(seen)
    pace = Pace(arm.clock, arm.period)
    while not arm.estop.is_set:
        pace.wait(arm.estop.event)
        arm.send(person.target(), arm.fetch(arm.period * FETCH_SHARE))
    until = time.monotonic() + PATIENCE_S
    while arm.stopped is None and time.monotonic() < until:
        time.sleep(0.0005)
