"""How evenly a loop ran and how long its parts took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from real_robot.clock import Clock

SLACK = 0.05  # share of a rate, or of pictures, that may be missing before it is said


def quantiles(values: Sequence[float], scale: float = 1.0) -> dict[str, float] | None:
    """Return {p50, p99, max, n} of ``values`` times ``scale``, or None of none."""
    if not len(values):
        return None
    array = np.asarray(values, float) * scale
    p50, p99 = np.percentile(array, [50, 99])
    return {"p50": round(float(p50), 4), "p99": round(float(p99), 4), "max": round(float(array.max()), 4), "n": len(array)}


def camera_rate(stamps: Sequence[float]) -> dict[str, float | None]:
    """Return of one camera, whose recorded pictures were taken at ``stamps``: {hz of new ones, repeated: share recorded a second time}."""
    fresh = sorted(set(stamps))
    hz = achieved_hz(fresh)
    return {"hz": None if hz is None else round(hz, 4), "repeated": round(1 - len(fresh) / len(stamps), 4)}


def achieved_hz(ticks: Sequence[float]) -> float | None:
    """Return the mean rate of ``ticks``, in clock seconds; None of fewer than two."""
    return (len(ticks) - 1) / (ticks[-1] - ticks[0]) if len(ticks) > 1 and ticks[-1] > ticks[0] else None


def missed(report: Mapping[str, Any], fps: float) -> str | None:
    """Say in a line what of an episode's ``report`` was slower than the ``fps`` asked for; None where nothing was."""
    found = []
    if report["achieved_hz"] is not None and report["achieved_hz"] < (1 - SLACK) * fps:
        found.append(f"the loop ran at {report['achieved_hz']:.1f} Hz")
    for name, camera in report["cameras"].items():
        if camera["repeated"] > SLACK:
            found.append(f"{camera['repeated']:.0%} of camera {name}'s pictures were recorded before ({camera['hz'] or 0:.1f} Hz)")
    if report["slow_reads"] > SLACK * report["ticks"]:
        found.append(f"{report['slow_reads']} readings of the robot took longer than a period, and commands waited for them")
    return (
        f"{'; '.join(found)}: {fps:g} Hz were asked for; choose a lower fps or smaller pictures, or end other programs" if found else None
    )


@dataclass
class Pace:
    """Deadlines of a loop at a fixed rate. A tick that comes late shortens the next wait; one late by a period or more starts anew."""

    clock: Clock
    period: float
    ticks: list[float] = field(default_factory=list)  # when each tick began
    late: list[float] = field(default_factory=list)  # seconds by which it began late
    overruns: int = 0
    _due: float | None = None

    def wait(self, wake=None) -> bool:
        """Sleep until the next tick is due and note it; True where ``wake`` (an Event) was set first."""
        now = self.clock.now()
        due = now if self._due is None else self._due
        if wake is not None and self.clock.sleep_until(due, wake):
            return True
        if wake is None:
            self.clock.sleep_until(due)
        now = self.clock.now()
        late = max(now - due, 0.0)
        self.ticks.append(now)
        self.late.append(late)
        if late >= self.period:
            self.overruns += 1
            self._due = now + self.period
        else:
            self._due = due + self.period
        return False

    def pause(self) -> None:
        """Start a new schedule at the next tick."""
        self._due = None


@dataclass
class Timings:
    """Durations and counts of one episode, in the robot's seconds."""

    observation_age: list[float] = field(default_factory=list)  # when the command left
    send: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)  # of the robot, in which it takes no command
    inference: list[float] = field(default_factory=list)  # wall seconds
    delay: list[float] = field(default_factory=list)  # steps between asking for a plan and executing it
    pictures: dict[str, list[float]] = field(default_factory=dict)  # {camera: when each recorded picture was taken}
    starved: int = 0  # ticks at which the plan had run out
    why: dict[str, int] = field(default_factory=dict)  # {what the guard did: ticks}

    def report(self, pace: Pace) -> dict[str, Any]:
        """Return rates and latencies as JSON; milliseconds."""
        hz = achieved_hz(pace.ticks)
        intervals = np.diff(pace.ticks)
        return {
            "achieved_hz": None if hz is None else round(hz, 4),
            "cameras": {name: camera_rate(stamps) for name, stamps in self.pictures.items()},
            "ticks": len(pace.ticks),
            "overruns": pace.overruns,
            "interval_ms": quantiles(intervals, 1e3),
            "late_ms": quantiles(pace.late, 1e3),
            "observation_age_ms": quantiles(self.observation_age, 1e3),
            "send_ms": quantiles(self.send, 1e3),
            "read_ms": quantiles(self.read, 1e3),
            "slow_reads": sum(seconds > pace.period for seconds in self.read),
            "inference_ms": quantiles(self.inference, 1e3),
            "delay_steps": quantiles(self.delay),
            "starved": self.starved,
            "guard": dict(self.why),
        }
