"""A policy under the eyes of a person who takes over when failure is near, as a policy like any other. The person is scripted.

    N episodes, H actions of a plan, A entries of an action, S of the proprioception

The rule, the same for every style: ``way`` is the distance that the person still sees from here to the goal (metres). Where it has not
fallen by ``gain`` for ``patience`` steps, the policy is stuck and the person acts from that step on:

    rac        RaC (Hu et al., arXiv 2509.07953, rules 1 and 2): the person first brings the hand back to where it came from
               (human_recovery), then carries on (human_correction), and the episode ends where that is past, so that nothing follows
               that is hard to credit
    hg_dagger  HG-DAgger (Kelly et al., arXiv 1810.02890): no way back, the person carries on from where the policy got stuck
               (human_correction), and returns control where that is past

Past it is where the way is ``hand_back`` metres shorter than the least that the policy had reached. The person begins the task anew.
A policy plans every H steps whoever acts, and gets control back when it would plan, so episodes do not depend on which others run beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from robowm.artefacts import fingerprint_json
from robowm.errors import UserError
from robowm.policy.lerobot import load_policy
from robowm.protocols import Fitted, Policy
from robowm.types import Controller, Obs


class Person(Protocol):
    """Somebody who can do the task, sees how far the goal is and can bring the hand back."""

    name: str
    policy: Policy  # how the task is done, one action a call

    def way(self, obs: Obs) -> np.ndarray:
        """Return metres f64 [N] that are left between the last row of ``obs`` and the goal; 0 where it holds."""
        ...

    def hand(self, state: np.ndarray) -> np.ndarray:
        """Return where the hand is, metres f64 [..., 3], from proprioception [..., S]."""
        ...

    def back(self, obs: Obs, state: np.ndarray) -> np.ndarray:
        """Return actions f32 [N, A] that move the hand a step towards where it was at proprioception ``state`` f32 [N, S]."""
        ...


@dataclass(frozen=True)
class Stuck:
    """When the person takes over."""

    patience: int = 14  # steps without progress
    gain: float = 0.004  # metres by which the way has to fall to count as progress

    def __post_init__(self) -> None:
        if self.patience < 1 or self.gain < 0:
            raise UserError(f"policy.stuck.patience={self.patience}, policy.stuck.gain={self.gain}; at least 1 step and 0 metres")


@dataclass(frozen=True)
class Rewind:
    """How far the person brings the hand back: to the last place on its path that is ``reach`` metres from here, or to its start."""

    reach: float = 0.08
    near: float = 0.012  # metres from that place at which the hand is there
    most: int = 12  # steps it may take

    def __post_init__(self) -> None:
        if not 0 <= self.near < self.reach or self.most < 1:
            raise UserError(f"policy.rewind={asdict(self)}; needs 0 <= near < reach and most >= 1")


@dataclass(frozen=True)
class Watch:
    """Memory of N episodes."""

    inner: Any  # the policy's
    rows: Obs | None  # what was seen since the policy last planned
    plan: np.ndarray | None  # f32 [N, H, A]
    step: int  # of the plan that comes next
    people: tuple[Any, ...]  # N memories of the person, None where the policy acts
    control: np.ndarray  # int8 [N], values of Controller
    path: np.ndarray  # f32 [N, T, S], proprioception so far
    least: np.ndarray  # f64 [N], least way since control last changed
    stuck: np.ndarray  # int [N], steps since it fell
    goal: np.ndarray  # f32 [N, S], where the hand is brought back to
    backward: np.ndarray  # int [N], steps of bringing it back
    over: np.ndarray  # bool [N], the episode is to end
    told: dict[str, np.ndarray]


class Watched:
    """Satisfies ``protocols.Policy`` and ``protocols.Tells``.

    Args:
        policy: who is watched.
        person: who watches.
        stuck: when the person takes over.
        rewind: how the hand is brought back first; None: not at all.
        hand_back: metres of way after which the policy gets control back; None: never.
        ends: the episode ends there instead.
    """

    kind = "human"

    def __init__(
        self,
        policy: Policy,
        person: Person,
        stuck: Stuck,
        rewind: Rewind | None = None,
        hand_back: float | None = None,
        ends: bool = False,
    ) -> None:
        if hand_back is not None and hand_back < 0:
            raise UserError(f"policy.hand_back={hand_back}; at least 0 metres, or null to keep control")
        self._policy, self._person, self._stuck = policy, person, stuck
        self._rewind, self._hand_back, self._ends = rewind, hand_back, ends
        rule = {"person": person.name, "stuck": asdict(stuck), "rewind": rewind and asdict(rewind), "hand_back": hand_back, "ends": ends}
        self.name = f"{policy.name}-watched-{fingerprint_json(rule)[:12]}"  # begins with the policy's, whose outcomes these are

    def check(self, spec: Mapping[str, Any]) -> None:
        """See Fitted."""
        if isinstance(self._policy, Fitted):
            self._policy.check(spec)

    def start(self, n: int) -> Watch:
        """See Policy."""
        none, many = np.zeros(n, int), np.full(n, np.inf)
        control = np.full(n, Controller.POLICY, np.int8)
        path, goal = np.zeros((n, 0, 0), np.float32), np.zeros((n, 0), np.float32)
        return Watch(self._policy.start(n), None, None, 0, (None,) * n, control, path, many, none, goal, none, none > 0, {})

    def act(self, obs: Obs, memory: Watch, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, Watch]:
        """See Policy; H = 1."""
        memory = self._seen(obs, memory)
        memory = self._planned(memory, rngs)
        way = self._person.way(obs)
        memory = self._handed_over(obs, way, memory)
        actions = memory.plan[:, memory.step].astype(np.float32, copy=True)
        people = list(memory.people)
        for i in np.flatnonzero(memory.control == Controller.HUMAN_CORRECTION):
            action, people[i] = self._person.policy.act(_row(obs, i), people[i], [rngs[i]])
            actions[i] = action[0, 0]
        if (back := memory.control == Controller.HUMAN_RECOVERY).any():
            actions[back] = self._person.back(obs, memory.goal)[back]
        told = {"controller": memory.control.copy(), "way": way.astype(np.float32), "over": memory.over}
        step = (memory.step + 1) % memory.plan.shape[1]
        return actions[:, None], replace(memory, step=step, people=tuple(people), told=told)

    def told(self, memory: Watch) -> dict[str, np.ndarray]:
        """See Tells: "controller", "way" f32 [N] before the step, and "over"."""
        return memory.told

    def _seen(self, obs: Obs, memory: Watch) -> Watch:
        rows = obs if memory.rows is None else _joined(memory.rows, obs)
        last = obs.state[:, -1:]
        first = memory.path.shape[1] == 0
        path = last if first else np.concatenate([memory.path, last], 1)
        return replace(memory, rows=rows, path=path, goal=last[:, 0] if first else memory.goal)

    def _planned(self, memory: Watch, rngs: Sequence[np.random.Generator]) -> Watch:
        if memory.step:
            return memory
        plan, inner = self._policy.act(memory.rows, memory.inner, rngs)
        return replace(memory, plan=plan, inner=inner, rows=None)

    def _handed_over(self, obs: Obs, way: np.ndarray, memory: Watch) -> Watch:
        """Decide who acts now. ``least`` stands still while the person acts, so that it says where the policy got stuck."""
        policy, person = memory.control == Controller.POLICY, memory.control == Controller.HUMAN_CORRECTION
        nearer = way < memory.least - self._stuck.gain
        stuck = np.where(policy & ~nearer & (way > 0), memory.stuck + 1, 0)
        least = np.where(policy & nearer, way, memory.least)
        takes = policy & (stuck >= self._stuck.patience)
        past = person & self._past(way, least)
        gives = past & (memory.step == 0) & (not self._ends)
        goal = memory.goal.copy()
        for i in np.flatnonzero(takes & (self._rewind is not None)):
            goal[i] = self._place_before(memory.path[i])
        there = (memory.control == Controller.HUMAN_RECOVERY) & self._is_back(obs, goal, memory.backward)
        first = Controller.HUMAN_CORRECTION if self._rewind is None else Controller.HUMAN_RECOVERY
        control = np.where(takes, first, np.where(there, Controller.HUMAN_CORRECTION, np.where(gives, Controller.POLICY, memory.control)))
        begins = (control == Controller.HUMAN_CORRECTION) & ~person
        people = tuple(self._person.policy.start(1) if new else one for new, one in zip(begins, memory.people, strict=True))
        return replace(
            memory,
            people=people,
            control=control.astype(np.int8),
            least=np.where(gives, way, least),
            stuck=np.where(takes, 0, stuck),
            goal=goal,
            backward=np.where(control == Controller.HUMAN_RECOVERY, memory.backward + 1, 0),
            over=past & self._ends,
        )

    def _past(self, way: np.ndarray, least: np.ndarray) -> np.ndarray:
        """Return bool [N]: so far past where the policy got stuck that it may go on."""
        return np.zeros(len(way), bool) if self._hand_back is None else way < least - self._hand_back

    def _place_before(self, path: np.ndarray) -> np.ndarray:
        """Return the last row of ``path`` f32 [T, S] that lies ``reach`` from where it ends, or its first."""
        hand = self._person.hand(path)
        far = np.flatnonzero(np.linalg.norm(hand - hand[-1], axis=-1) >= self._rewind.reach)
        return path[far[-1] if len(far) else 0]

    def _is_back(self, obs: Obs, goal: np.ndarray, backward: np.ndarray) -> np.ndarray:
        """Return bool [N]: the hand is where it was brought back to, or has tried for long enough."""
        if self._rewind is None:
            return np.zeros(len(obs), bool)
        away = np.linalg.norm(self._person.hand(obs.state[:, -1]) - self._person.hand(goal), axis=-1)
        return (away <= self._rewind.near) | (backward >= self._rewind.most)


def _row(obs: Obs, i: int) -> Obs:
    """Return what episode ``i`` alone showed."""
    one = slice(i, i + 1)
    truth = None if obs.environment_state is None else obs.environment_state[one]
    return Obs({camera: frames[one] for camera, frames in obs.frames.items()}, obs.state[one], truth, obs.task[one])


def _joined(earlier: Obs, later: Obs) -> Obs:
    """Return the rows of both, one after the other."""
    truth = None
    if later.environment_state is not None:
        truth = np.concatenate([earlier.environment_state, later.environment_state], 1)
    frames = {camera: np.concatenate([earlier.frames[camera], later.frames[camera]], 1) for camera in later.frames}
    return Obs(frames, np.concatenate([earlier.state, later.state], 1), truth, later.task)


def load_watched(
    path: Path | str,
    *,
    person: Person,
    stuck: Stuck,
    rewind: Rewind | None = None,
    hand_back: float | None = None,
    ends: bool = False,
    device: str = "auto",
    infer_width: int = 32,
    ddim_steps: int | None = None,
) -> Watched:
    """Return the policy folder ``path`` under the eyes of ``person``."""
    policy = load_policy(path, device=device, infer_width=infer_width, ddim_steps=ddim_steps)
    return Watched(policy, person, stuck, rewind, hand_back, ends)
