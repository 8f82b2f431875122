"""How often a policy gets stuck and comes past it by itself, which is what RaC wants to teach (arXiv 2509.07953). Pure numpy.

Stuck is what a person would take over from (robowm.habc.takeover.Stuck). A scripted expert that walks around a cube counts too now and then
(on the tabletop 0 to .28 an episode), so compare policies, and with the expert's own rate.

``way`` f64 [T + 1] is the distance that is left (metres) at each observation of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from robowm.errors import UserError
from robowm.types import Episode, Obs


class Watcher(Protocol):
    """See robowm.habc.takeover.Person."""

    def way(self, obs: Obs) -> np.ndarray:
        """Return metres f64 [N] that are left between the last row of ``obs`` and the goal."""
        ...


def recoveries(way: np.ndarray, patience: int, gain: float) -> int:
    """Return how often ``way`` did not fall by ``gain`` for ``patience`` steps or more and then fell after all, until it first is 0."""
    count, since, least = 0, 0, way[0]
    for now in way[1:]:
        if least <= 0:
            break
        if now < least - gain:
            count += since >= patience
            least, since = now, 0
        else:
            since += 1
    return int(count)


@dataclass(frozen=True)
class Recoveries:
    """The recoveries of an episode, as a measure of ``evaluate`` (``measures={recoveries: ...}``)."""

    person: Watcher  # who sees how far the goal is
    patience: int = 14  # steps without progress
    gain: float = 0.004  # metres that count as progress

    def __post_init__(self) -> None:
        if self.patience < 1 or self.gain < 0:
            raise UserError(f"measures.recoveries: patience={self.patience}, gain={self.gain}; at least 1 step and 0 metres")

    def __call__(self, episode: Episode) -> float:
        """Return the number of recoveries."""
        truth = None if episode.environment_state is None else episode.environment_state[:, None]
        return float(
            recoveries(
                self.person.way(Obs({}, episode.state[:, None], truth, (episode.task,) * (len(episode) + 1))), self.patience, self.gain
            )
        )
