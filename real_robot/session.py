"""One episode on a robot, tick by tick: look, hear what the operator says, choose, send, record.

At tick t the observation of row t is taken and action t is sent, so that obs[t] --action[t]--> obs[t+1]; the episode ends with one more
observation. Ticks at which the robot is held where it is (a plan that is not ready, a stale camera, a released dead-man key) are no part of
the episode: the robot stands still, and the record goes on when it moves again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from real_robot.arm import Arm, Seen, Sent
from real_robot.devices import pose_of
from real_robot.labels import CONTROLLER, ENDS, HUMAN_MODES, Event, Mode, next_mode, quality_of
from real_robot.operator import Operator
from real_robot.pilots import PathPilot, PolicyPilot, TeleopPilot
from real_robot.rates import Pace, Timings, missed
from real_robot.rewind import path_back, rewind_to
from real_robot.safety import DeadMan, Why
from robowm.errors import UserError
from robowm.types import Controller

log = logging.getLogger(__name__)
FETCH_SHARE = 0.5  # of a period that a tick waits for its observation
BAD_PLANS = 3  # ticks in a row with NaN after which an episode ends
GIVEN_UP = 3  # episodes in a row that were held for too long after which the program ends


class Record(Protocol):
    """Takes the steps of an episode."""

    def add(self, seen: Seen, action: np.ndarray, controller: Controller) -> None: ...


@dataclass(frozen=True)
class Rules:
    """What an episode is made by."""

    max_steps: int
    rewind_steps: int  # how far back a rewind goes at least
    hold_limit_s: float  # seconds of being held in a row after which an episode is given up
    familiar: Callable[[np.ndarray], np.ndarray] | None = None  # states [T, S] -> bool [T]; None: all are


@dataclass
class Played:
    """What happened in an episode."""

    last: Seen
    end: Event  # one of ENDS
    quality: int = 0  # 1 to 5, 0: nobody said
    steps: int = 0
    commands: Counter = field(default_factory=Counter)  # {Controller: commands that moved the robot}, counted where they are sent
    events: list[tuple[int, str]] = field(default_factory=list)  # (step, what was said)
    report: dict[str, Any] = field(default_factory=dict)  # rates and latencies
    held: str = ""  # why the robot was held for so long that the episode was given up


@dataclass
class Crew:
    """Who may have control; ``policy`` None: demonstrations; ``teleop`` None: nobody can take over."""

    operator: Operator
    teleop: TeleopPilot | None
    policy: PolicyPilot | None
    dead_man: DeadMan

    @property
    def first(self) -> Mode:
        """Who begins."""
        return Mode.DEMO if self.policy is None else Mode.POLICY


class Session:
    """Plays one episode after another."""

    def __init__(self, arm: Arm, crew: Crew, rules: Rules, watch: Callable[[Seen, Sent], None] | None = None) -> None:
        self.arm, self.crew, self.rules, self._watch = arm, crew, rules, watch
        self._given_up = 0  # episodes in a row

    def prepare(self, seed: int, home: np.ndarray | None) -> bool:
        """Let the scene of start ``seed`` be set up, at ``home`` f64 [A] where given; return whether the operator is ready (not: quits).

        Meanwhile the teleoperator moves the robot, after it has driven home.
        """
        crew, arm = self.crew, self.arm
        pace, taken = Pace(arm.clock, arm.period), False
        self.go_home(home)
        crew.operator.prepare(seed)
        while True:
            self._check_stop()
            said = crew.operator.poll(crew.first, 0)
            if Event.QUIT in said:
                return False
            if Event.READY in said:
                return True
            pace.wait(arm.estop.event)
            seen = arm.fetch(arm.period * FETCH_SHARE)
            if crew.teleop is not None and crew.first == Mode.DEMO:
                if not taken:
                    crew.teleop.take(seen)
                    taken = True
                arm.send(crew.teleop.target(), seen)

    def go_home(self, home: np.ndarray | None) -> None:
        """Drive to ``home`` f64 [A], where that is known: robots may let go of their motors when they are disconnected."""
        if home is not None:
            self.drive(home)

    def drive(self, pose: np.ndarray, patience_s: float = 20.0) -> None:
        """Move to ``pose`` f64 [A] within the limits, at a third of their velocity; UserError where it is not reached in time."""
        arm = self.arm
        pace, until = Pace(arm.clock, arm.period), arm.clock.now() + patience_s
        seen = arm.fresh()
        arm.begin(seen)
        start = pose_of(seen.state, arm.spec)
        slow = np.nan_to_num(arm.guard.limits.velocity / 3, posinf=np.inf)
        steps = int(max(np.ceil(np.abs(pose - start) / (slow * arm.period)).max(), arm.spec.fps)) + 1
        for k in range(1, steps + 1):
            self._check_stop()
            pace.wait(arm.estop.event)
            sent = arm.send(start + (pose - start) * k / steps, arm.fetch(arm.period * FETCH_SHARE))
            if sent.command.held and arm.clock.now() > until:
                raise UserError(
                    f"the robot does not move ({', '.join(sorted(sent.command.why))}); check cameras and limits, then run again"
                )

    def play(self, record: Record, rng: np.random.Generator, after: float = -np.inf) -> Played:
        """Play an episode on observations taken later than ``after`` and record it."""
        episode = _Episode(self.arm, self.crew, self.rules, record, self._watch)
        try:
            played = episode.run(rng, after)
        finally:
            if not self.arm.estop.is_set:
                self.arm.rest()
        self._count(played)
        return played

    def _count(self, played: Played) -> None:
        """Say why an episode was given up, and end the program where it happens again and again."""
        self._given_up = self._given_up + 1 if played.held else 0
        if played.held:
            line = f"the robot was held for {self.rules.hold_limit_s:g} s ({played.held}) and the episode is given up"
            log.warning(line)
            if self._given_up >= GIVEN_UP:
                raise UserError(f"{line}, {GIVEN_UP} in a row; check cameras, cables and safety.*, then run the same command again")

    def _check_stop(self) -> None:
        if self.arm.estop.is_set:
            raise Stopped(self.arm.estop.reason)


class Stopped(UserError):
    """The emergency stop."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"emergency stop ({reason}); the finished episodes are safe: make sure that all is well and run the same command again"
        )


class _Episode:
    """The state of one episode."""

    def __init__(self, arm: Arm, crew: Crew, rules: Rules, record: Record, watch) -> None:
        self.arm, self.crew, self.rules, self.record, self._watch = arm, crew, rules, record, watch
        self.mode = crew.first
        self.timings = Timings()
        self.pace = Pace(arm.clock, arm.period)
        self.path: PathPilot | None = None
        self.commands: list[np.ndarray] = []  # where it was told to be, row by row
        self.states: list[np.ndarray] = []
        self._held_since: float | None = None
        self._asked = False  # for the dead-man key
        self._bad = 0

    def run(self, rng: np.random.Generator, after: float) -> Played:
        arm, crew = self.arm, self.crew
        arm.read_s.clear()
        seen = arm.fresh(after)
        arm.begin(seen)
        self.commands.append(pose_of(seen.state, arm.spec))
        played = Played(seen, Event.QUIT)
        if crew.policy is not None:
            crew.policy.begin(rng)
            crew.policy.prepare(seen)
        self._enter(self.mode, seen)
        while True:
            self.pace.wait(arm.estop.event)
            if arm.estop.is_set:
                raise Stopped(arm.estop.reason)
            seen = arm.fetch(arm.period * FETCH_SHARE)
            said = crew.operator.poll(self.mode, played.steps)
            if (end := self._hear(said, seen, played)) is not None:
                break
            if played.steps >= self.rules.max_steps:
                end = self._time_is_up(played)
                break
            if (end := self._tick(seen, played)) is not None:
                break
        stale = seen.age(arm.clock.now()) > arm.guard.stale_s and end in (Event.SUCCESS, Event.FAILURE)
        played.last, played.end = arm.fresh() if stale else seen, end
        played.report = self._report()
        return played

    # ------------------------------------------------------------------ one tick

    def _tick(self, seen: Seen, played: Played) -> Event | None:
        arm, crew = self.arm, self.crew
        if crew.policy is not None:
            crew.policy.observe(seen)
        if crew.operator.holding():
            crew.dead_man.sign(arm.clock.now())
        target = self._target(seen)
        enabled = self.mode not in (Mode.POLICY, Mode.REWIND) or crew.dead_man.held(arm.clock.now())
        began = time.perf_counter()
        sent = arm.send(target, seen, enabled=enabled)
        self.timings.send.append(time.perf_counter() - began)
        self.timings.observation_age.append(sent.at - seen.at)
        for why in sent.command.why:
            self.timings.why[str(why)] = self.timings.why.get(str(why), 0) + 1
        if Why.STOPPED in sent.command.why:
            raise Stopped(arm.estop.reason)
        if self._watch is not None:
            self._watch(seen, sent)
        if sent.command.held:
            return self._stood_still(sent, played)
        self._held_since, self._bad = None, 0
        controller = CONTROLLER[self.mode]
        self.record.add(seen, sent.action, controller)
        for camera, at in seen.frame_at.items():
            self.timings.pictures.setdefault(camera, []).append(at)
        played.commands[controller] += 1
        played.steps += 1
        self.commands.append(sent.command.action)
        self.states.append(seen.state)
        if self.mode == Mode.POLICY:
            crew.policy.done()
        elif self.mode == Mode.REWIND:
            self.path.done()
        return None

    def _target(self, seen: Seen) -> np.ndarray | None:
        if self.mode == Mode.POLICY:
            if self.crew.teleop is not None:
                self.crew.teleop.follow(seen)
            target = self.crew.policy.target()
            self.timings.starved += target is None
            return target
        if self.mode == Mode.REWIND:
            if self.path.left:
                return self.path.target()
            self._enter(Mode.RECOVERY, seen)
        return self.crew.teleop.target()

    def _stood_still(self, sent: Sent, played: Played) -> Event | None:
        """Nothing moved: give up after too long, and after too many bad plans."""
        now = self.arm.clock.now()
        if Why.BAD_ACTION in sent.command.why:
            self._bad += 1
            if self.mode == Mode.POLICY:
                self.crew.policy.drop_plan()
            if self._bad >= BAD_PLANS:
                raise UserError(
                    f"{self.mode} gave {self._bad} actions in a row that are not finite numbers; the robot stands still, check it"
                )
        waits_for_person = Why.DEAD_MAN in sent.command.why
        if waits_for_person and not self._asked:
            self._asked = True
            log.warning("the dead-man key is up: the robot waits until it is held down (at the keyboard: h)")
        if self._held_since is None or waits_for_person:
            self._held_since = now
        elif now - self._held_since > self.rules.hold_limit_s:
            played.held = ", ".join(sorted(sent.command.why))
            return Event.DISCARD
        return None

    # ------------------------------------------------------------------ what was said

    def _hear(self, said: list[Event], seen: Seen, played: Played) -> Event | None:
        for event in said:
            played.events.append((played.steps, str(event)))
            if event in ENDS:
                return event
            played.quality = quality_of(event) or played.quality
            mode = next_mode(self.mode, event)
            if mode in HUMAN_MODES and self.crew.teleop is None:
                continue  # nobody there to take over
            if mode != self.mode:
                self._enter(mode, seen)
        return None

    def _enter(self, mode: Mode, seen: Seen) -> None:
        """Hand control over."""
        before, self.mode = self.mode, mode
        if mode == Mode.POLICY and before != mode:
            self.crew.policy.resume()
        if mode == Mode.REWIND:
            self.path = PathPilot(self._way_back(seen))
        human = (Mode.DEMO, Mode.RECOVERY, Mode.CORRECTION)
        if mode in human and (before not in (Mode.RECOVERY, Mode.CORRECTION)):
            self.crew.teleop.take(seen)

    def _way_back(self, seen: Seen) -> np.ndarray:
        states = np.stack([*self.states, seen.state])
        familiar = np.ones(len(states), bool) if self.rules.familiar is None else self.rules.familiar(states)
        row = rewind_to(self.rules.rewind_steps, familiar)
        return path_back(np.stack(self.commands), row)

    def _time_is_up(self, played: Played) -> Event:
        """Hold the robot, whose velocities would go on, until somebody says how it ended."""
        self.arm.rest()
        said = self.crew.operator.time_is_up()
        while True:
            if self.arm.estop.is_set:
                raise Stopped(self.arm.estop.reason)
            for event in said:
                played.events.append((played.steps, str(event)))
                played.quality = quality_of(event) or played.quality
                if event in ENDS:
                    return event
            self.arm.clock.sleep_until(self.arm.clock.now() + self.arm.period, self.arm.estop.event)
            self.arm.rest()
            said = self.crew.operator.poll(self.mode, played.steps)

    def _report(self) -> dict[str, Any]:
        if self.crew.policy is not None:
            stats = self.crew.policy.stats
            self.timings.inference, self.timings.delay = stats.inference, stats.delay
        self.timings.read = list(self.arm.read_s)
        report = self.timings.report(self.pace)
        if (line := missed(report, self.arm.spec.fps)) is not None:
            log.warning(line)
        return report
