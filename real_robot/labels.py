"""Who is in control, as pure functions of what the operator said. The labels are those of robowm.types and are recorded as they happen.

demo        a person teleoperates from the start                        -> demo
policy      the policy acts                                             -> policy
recovery    a person took over and leads back to where the policy       -> human_recovery
            knows its way
rewind      ... by letting the arm drive back along its own path        -> human_recovery
correction  a person shows what to do from there                        -> human_correction
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from robowm.types import Controller


class Mode(StrEnum):
    """Who is in control."""

    DEMO = "demo"
    POLICY = "policy"
    RECOVERY = "recovery"
    REWIND = "rewind"
    CORRECTION = "correction"


class Event(StrEnum):
    """What an operator may say."""

    TAKE_OVER = "take_over"  # a person takes control from the policy, to recover first; said again: gives it back
    CORRECT = "correct"  # from here on it is a correction (from the policy: take over for one at once); said again: a recovery
    REWIND = "rewind"  # drive back along the path so far; said again: stop there
    SUCCESS = "success"  # the episode ends, and succeeded
    FAILURE = "failure"  # the episode ends, and failed
    DISCARD = "discard"  # forget this episode and record it again
    QUIT = "quit"  # forget this episode and end the program; the same command goes on
    READY = "ready"  # the scene is set up: begin
    QUALITY_1 = "quality_1"  # how good the episode was, 1 to 5: said before it ends
    QUALITY_2 = "quality_2"
    QUALITY_3 = "quality_3"
    QUALITY_4 = "quality_4"
    QUALITY_5 = "quality_5"


ENDS = (Event.SUCCESS, Event.FAILURE, Event.DISCARD, Event.QUIT)
HUMAN_MODES = (Mode.RECOVERY, Mode.REWIND, Mode.CORRECTION)
CONTROLLER = {
    Mode.DEMO: Controller.DEMO,
    Mode.POLICY: Controller.POLICY,
    Mode.RECOVERY: Controller.HUMAN_RECOVERY,
    Mode.REWIND: Controller.HUMAN_RECOVERY,
    Mode.CORRECTION: Controller.HUMAN_CORRECTION,
}
_NEXT = {
    (Mode.POLICY, Event.TAKE_OVER): Mode.RECOVERY,
    (Mode.POLICY, Event.CORRECT): Mode.CORRECTION,
    (Mode.POLICY, Event.REWIND): Mode.REWIND,
    (Mode.RECOVERY, Event.TAKE_OVER): Mode.POLICY,
    (Mode.RECOVERY, Event.CORRECT): Mode.CORRECTION,
    (Mode.RECOVERY, Event.REWIND): Mode.REWIND,
    (Mode.CORRECTION, Event.TAKE_OVER): Mode.POLICY,
    (Mode.CORRECTION, Event.CORRECT): Mode.RECOVERY,
    (Mode.CORRECTION, Event.REWIND): Mode.REWIND,
    (Mode.REWIND, Event.TAKE_OVER): Mode.POLICY,
    (Mode.REWIND, Event.CORRECT): Mode.CORRECTION,
    (Mode.REWIND, Event.REWIND): Mode.RECOVERY,
}


def next_mode(mode: Mode, event: Event) -> Mode:
    """Return who is in control after ``event``; what means nothing now (a take-over of a demonstration) changes nothing."""
    return _NEXT.get((mode, event), mode)


def quality_of(event: Event) -> int | None:
    """Return 1 to 5 for an event that says how good the episode was, else None."""
    return int(event[-1]) if event.startswith("quality_") else None


def segments(controller: np.ndarray) -> np.ndarray:
    """Return int32 [T]: the number of changes of ``controller`` int8 [T] before each step."""
    return np.cumsum(np.diff(controller, prepend=controller[:1]) != 0).astype(np.int32)


def rewards(steps: int, success: float) -> np.ndarray:
    """Return f32 [T]: 1 after the last step of an episode that a person ended as a success, else 0."""
    reward = np.zeros(steps, np.float32)
    if steps and success == 1:
        reward[-1] = 1.0
    return reward
