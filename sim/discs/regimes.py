"""Which rows of an episode are which: the puck rests, glides or is being hit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robowm.errors import UserError
from robowm.types import Episode
from sim.discs.env import AGENT, PUCK


@dataclass(frozen=True)
class Regimes:
    """Maps an episode to {"free" | "moving" | "contact": bool [T+1]}. Every row is in exactly one: contact before moving before free."""

    margin: float = 0.03  # squares between the discs that still count as contact: one control step is long
    speed: float = 0.05  # squares a second from which on the puck moves

    def __call__(self, episode: Episode) -> dict[str, np.ndarray]:
        """Read the simulator's truth f32 [T+1, 7]."""
        truth = episode.environment_state
        if truth is None or truth.shape[1] != 7:
            raise UserError(
                f"the discs' regimes need their environment state of 7 numbers, found {None if truth is None else truth.shape[1]}"
            )
        contact = np.linalg.norm(truth[:, :2] - truth[:, 2:4], axis=1) < AGENT + PUCK + self.margin
        moving = ~contact & (np.linalg.norm(truth[:, 4:6], axis=1) > self.speed)
        return {"free": ~contact & ~moving, "moving": moving, "contact": contact}
