"""Who chooses targets, tick by tick: a person at a teleoperator, a policy through its plans, the path back.

A entries of an action, H actions of a plan, K rows that a policy looks at
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from real_robot.arm import Seen
from real_robot.chunks import joined
from real_robot.devices import READ_ERRORS, one_line
from robowm.data.spec import StoreSpec
from robowm.errors import UserError
from robowm.protocols import Policy
from robowm.types import Obs

HISTORY = 8  # rows kept for a policy that begins anew: more than any looks back
RECENT_DELAYS = 20  # plans whose delays say how long the next will take


class TeleopPilot:
    """A teleoperator. Where it can be driven (a leader arm with ``enable_torque``), it follows the robot until its person takes control."""

    def __init__(self, teleop: Any, spec: StoreSpec) -> None:
        self.teleop, self._names = teleop, spec.action_names
        self._index = {name: spec.state_names.index(name) for name in spec.action_names if name in spec.state_names}
        self._follows = bool(teleop.feedback_features) and callable(getattr(teleop, "enable_torque", None))
        self._driven = False
        if lacks := sorted(set(spec.action_names) - set(teleop.action_features)):
            raise UserError(
                f"teleop {teleop.name!r} gives {', '.join(teleop.action_features)}, the robot wants {lacks[0]!r} too; use a matching one"
            )

    def follow(self, seen: Seen) -> None:
        """Somebody else has control: take a driven leader along."""
        if self._follows:
            with self._device():
                if not self._driven:
                    self.teleop.enable_torque()
                    self._driven = True
                self._feed(seen)

    def take(self, seen: Seen) -> None:
        """The person takes control, at the robot's pose."""
        with self._device():
            if self.teleop.feedback_features:
                self._feed(seen)
            if self._driven:
                self.teleop.disable_torque()
                self._driven = False

    def target(self) -> np.ndarray:
        """Return where the person wants the robot, f64 [A]."""
        with self._device():
            action = self.teleop.get_action()
        return np.array([action[name] for name in self._names], float)

    @contextmanager
    def _device(self) -> Iterator[None]:
        """Make one line of what the device raises."""
        try:
            yield
        except READ_ERRORS as error:
            raise UserError(
                f"teleop {self.teleop.name!r} does not answer: {one_line(error)}; check its power and cable and run the same command again"
            ) from error

    def _feed(self, seen: Seen) -> None:
        self.teleop.send_feedback({name: float(seen.state[i]) for name, i in self._index.items()})


class PathPilot:
    """Plays targets f64 [M, A], ``left`` says how many are still to come."""

    def __init__(self, targets: np.ndarray) -> None:
        self._targets, self._next = targets, 0

    @property
    def left(self) -> int:
        return len(self._targets) - self._next

    def target(self) -> np.ndarray:
        """Return the next one, the same until it is ``done``."""
        return self._targets[self._next]

    def done(self) -> None:
        """The target was executed."""
        self._next += 1


class Chunking(Protocol):
    """How a fresh plan takes over from the one before."""

    replan_after: int | None  # steps of a plan after which the next is begun; None: as late as the last delays allow
    overlap: int  # steps that the running plan should still have when the next arrives

    def plan(self, policy: Policy, obs: Obs, memory: Any, rng: np.random.Generator, left: np.ndarray, delay: int) -> tuple[np.ndarray, Any]:
        """Return a plan f32 [H, A] from the step of ``obs`` on, and the policy's memory.

        ``left`` f32 [M, A] is what the running plan holds from that step on, of which about ``delay`` actions will be executed meanwhile.
        """
        ...

    def join(self, left: np.ndarray, fresh: np.ndarray, delay: int) -> np.ndarray:
        """Return what to execute now f32 [H - delay, A], where ``fresh`` arrives ``delay`` steps after it was begun."""
        ...


@dataclass(frozen=True)
class Blend:
    """Fade a fresh plan in over ``width`` steps (0: switch at once). For every policy."""

    width: int = 2
    replan_after: int | None = None

    def __post_init__(self) -> None:
        if self.width < 0 or (self.replan_after is not None and self.replan_after < 1):
            raise UserError(f"chunking: width={self.width} (0 or more), replan_after={self.replan_after} (1 or more, or null)")

    @property
    def overlap(self) -> int:
        """See Chunking."""
        return self.width

    def plan(self, policy, obs, memory, rng, left, delay):
        """See Chunking."""
        actions, memory = policy.act(obs, memory, [rng])
        return actions[0], memory

    def join(self, left: np.ndarray, fresh: np.ndarray, delay: int) -> np.ndarray:
        """See Chunking."""
        return joined(left, fresh, delay, self.width)


@dataclass
class PlanStats:
    """What the plans of one episode took."""

    inference: list[float] = field(default_factory=list)  # wall seconds
    delay: list[int] = field(default_factory=list)  # steps executed while it was made
    bad: int = 0  # thrown away, since they held what must not be executed


class PolicyPilot:
    """A policy whose plans are made in a thread while the plan before is executed.

    Each tick: ``observe``, ``target``, and ``done`` if the target was executed. Delays count executed steps, so that time in which the
    robot stands still and waits for a plan takes nothing away from it.
    """

    def __init__(self, policy: Policy, chunking: Chunking, task: str, size: int) -> None:
        self.policy, self.chunking, self._task, self._size = policy, chunking, task, size
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="policy")
        self._asked: Future | None = None
        self._delays: deque[int] = deque(maxlen=RECENT_DELAYS)  # kept over episodes
        self.begin(np.random.default_rng(0))

    def begin(self, rng: np.random.Generator) -> None:
        """Start an episode, whose noise ``rng`` draws."""
        self._rng, self.stats = rng, PlanStats()
        self._history: deque[Seen] = deque(maxlen=HISTORY)
        self.resume()

    def resume(self) -> None:
        """Take control again after somebody else had it: no plan is left, and the policy looks at the latest rows afresh."""
        self._abandon()
        self._memory, self._new = self.policy.start(1), len(self._history)
        self._plan, self._length, self._since = np.zeros((0, self._size), np.float32), 1, 0

    def observe(self, seen: Seen) -> None:
        """Note what is seen at this tick, whoever has control."""
        self._history.append(seen)
        self._new = min(self._new + 1, HISTORY)

    def prepare(self, seen: Seen) -> None:
        """Make a plan from ``seen`` and wait for it, so that an episode begins moving."""
        self.observe(seen)
        self._ask()
        self._receive()

    def target(self) -> np.ndarray | None:
        """Return what to do now, f64 [A], or None where no plan is ready."""
        if self._asked is not None and self._asked.done():
            self._receive()
        if self._asked is None and self._new and len(self._plan) <= self._margin():
            self._ask()
        return self._plan[0].astype(float) if len(self._plan) else None

    def done(self) -> None:
        """The target of this tick was executed."""
        self._plan, self._since = self._plan[1:], self._since + 1

    def drop_plan(self) -> None:
        """Forget the plan: it holds something that must not be executed."""
        self._abandon()
        self._plan = self._plan[:0]
        self.stats.bad += 1

    def close(self) -> None:
        """End the thread."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _margin(self) -> int:
        """Return how many actions of a plan may be left when the next is begun."""
        if self.chunking.replan_after is not None:
            return max(self._length - self.chunking.replan_after, 0)
        return max(self._delays, default=1) + 1 + self.chunking.overlap

    def _abandon(self) -> None:
        """Wait for a plan that is being made and throw it away."""
        if self._asked is not None:
            self._asked.exception()
            self._asked = None

    def _ask(self) -> None:
        obs = stacked(list(self._history)[-self._new :], self._task)
        self._new, self._since = 0, 0
        self._asked = self._worker.submit(self._timed, obs, self._memory, self._plan.copy(), max(self._delays, default=0))

    def _timed(self, obs: Obs, memory: Any, left: np.ndarray, delay: int) -> tuple[np.ndarray, Any, float]:
        began = time.perf_counter()
        plan, memory = self.chunking.plan(self.policy, obs, memory, self._rng, left, delay)
        return np.asarray(plan, np.float32), memory, time.perf_counter() - began

    def _receive(self) -> None:
        asked, self._asked = self._asked, None
        plan, self._memory, seconds = asked.result()
        self.stats.inference.append(seconds)
        self.stats.delay.append(self._since)
        self._delays.append(self._since)
        self._plan, self._length = self.chunking.join(self._plan, plan, self._since), len(plan)


def stacked(rows: Sequence[Seen], task: str) -> Obs:
    """Return K rows as what one environment showed."""
    frames = {name: np.stack([row.frames[name] for row in rows])[None] for name in rows[0].frames}
    return Obs(frames, np.stack([row.state for row in rows])[None], None, (task,))
