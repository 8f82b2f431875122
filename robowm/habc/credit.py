"""Who earned an episode's outcome. Pure functions of what was recorded.

    T steps of one episode, n steps of an executed chunk

HABC (arXiv 2606.17043), section "intervention-aware credit assignment": an outcome belongs to the policy alone where it acted alone, that
is after the last step of anybody else. What it did before stays in the data without a label, and a person's steps never get one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from robowm.data.spec import EpisodeMeta
from robowm.types import Controller

HUMAN = (Controller.HUMAN_RECOVERY, Controller.HUMAN_CORRECTION)
REAL = ("rollout", "human")  # kinds of episodes whose outcomes say how well the policy does: all were kept, and no world model took part
NEVER = np.iinfo(np.int64).max  # steps until something that does not come


class Role(IntEnum):
    """What a step counts as when it is imitated."""

    DEMO = 0
    SUCCESS = 1  # of the policy, in an episode that succeeded
    FAILURE = 2  # of the policy, guided, or imagined, in an episode that failed or was not judged
    HUMAN = 3  # of a person who took over
    ASSISTED = 4  # guided or imagined, in an episode that succeeded


@dataclass(frozen=True)
class Credit:
    """What the steps of one episode may teach."""

    role: np.ndarray  # int8 [T], values of Role
    until_takeover: np.ndarray  # int64 [T], see ``until_takeover``
    outcome: np.ndarray  # f32 [T], 1 / 0 where the state before the step has a viability label, nan elsewhere
    timed: np.ndarray  # bool [T], the state before the step has a target of steps to go
    togo: np.ndarray  # int64 [T], steps until the goal first held, 0 afterwards; NEVER without success
    span: np.ndarray  # int64 [T], steps of the step's window: 0 once the goal has held, else 1 .. n
    arrives: np.ndarray  # bool [T], the window ends where the goal first holds, or begins after that


def assign(
    meta: EpisodeMeta,
    controller: np.ndarray,
    segment: np.ndarray,
    reward: np.ndarray,
    *,
    chunk: int,
    margin: int = 0,
    own: bool = True,
    whole_episode: bool = False,
) -> Credit:
    """Return what an episode may teach, from ``controller`` int8 [T], ``segment`` int32 [T] and ``reward`` f32 [T].

    ``chunk`` is n. The ``margin`` steps before a take-over get neither label nor target. ``own`` says that it was the policy which the
    critics judge: the steps of others get neither. ``whole_episode`` switches the rule off: then every step of the policy in a real
    episode gets its outcome, whoever helped; a person's, guided and imagined steps never do.
    """
    real = meta.source.kind in REAL
    succeeded = meta.success == 1
    policy = (controller == Controller.POLICY) & own
    alone = policy & (whole_episode | (np.arange(len(controller)) >= alone_from(controller)))
    until = until_takeover(controller)
    outcome = np.where(alone & real & (until > margin), meta.success, np.nan).astype(np.float32)
    shown = np.isin(controller, (*HUMAN, Controller.GUIDED))
    timed = (shown | alone) & (until > margin) & succeeded & (meta.source.kind not in ("imagined", "demo"))
    togo = steps_to_go(reward, succeeded)
    span = spans(segment, togo, chunk)
    return Credit(roles(controller, meta.source.kind, succeeded), until, outcome, timed, togo, span, span == togo)


def alone_from(controller: np.ndarray) -> int:
    """Return the first step after the last one that was not the policy's own; 0 where all were."""
    others = np.flatnonzero(controller != Controller.POLICY)
    return int(others[-1]) + 1 if len(others) else 0


def until_takeover(controller: np.ndarray) -> np.ndarray:
    """Return int64 [T]: how many steps after each one a person takes over, 1 for the last before it; NEVER where nobody does, and on a
    person's own steps. A demonstration is never taken over."""
    human = np.isin(controller, HUMAN)
    times = np.arange(len(controller))
    following = np.minimum.accumulate(np.where(human, times, NEVER)[::-1])[::-1]  # [T] the next step of a person
    comes = ~human & (controller != Controller.DEMO) & (following != NEVER)
    return np.where(comes, following - times, NEVER)


def steps_to_go(reward: np.ndarray, succeeded: bool) -> np.ndarray:
    """Return int64 [T]: steps from the state before each step until the goal first held (``reward`` above one half after a step).

    A success without such a reward (judged by a person) holds at the end. 0 afterwards, NEVER everywhere without success.
    """
    if not succeeded:
        return np.full(len(reward), NEVER)
    held = np.flatnonzero(reward > 0.5)
    arrival = int(held[0]) + 1 if len(held) else len(reward)
    return np.maximum(arrival - np.arange(len(reward)), 0)


def spans(segment: np.ndarray, togo: np.ndarray, chunk: int) -> np.ndarray:
    """Return int64 [T]: how many of the ``chunk`` steps from each one on lie in its segment and before the goal first held.

    The others are another controller's, or are not needed any more: a window that straddles is masked there.
    """
    times = np.arange(len(segment))
    ends = np.searchsorted(segment, segment, side="right")  # segments count up
    return np.minimum(np.minimum(ends - times, chunk), togo)


def roles(controller: np.ndarray, kind: str, succeeded: bool) -> np.ndarray:
    """Return int8 [T], values of Role. In an imagined episode every step is imagined, whoever acted."""
    policy = Role.SUCCESS if succeeded else Role.FAILURE
    assisted = Role.ASSISTED if succeeded else Role.FAILURE
    table = np.full(len(Controller), Role.HUMAN, np.int8)
    table[Controller.DEMO] = Role.DEMO
    table[Controller.POLICY] = assisted if kind == "imagined" else policy
    table[Controller.GUIDED] = assisted
    return table[controller]


def policies_of(metas: Sequence[EpisodeMeta]) -> list[str]:
    """Return who acted in the real episodes of ``metas``, each name once."""
    return sorted({str(meta.source.policy) for meta in metas if meta.source.kind in REAL})
