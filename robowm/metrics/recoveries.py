"""How often an episode goes wrong and comes right again: set-backs of the way to the goal that are made good. Pure numpy.

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


def recoveries(way: np.ndarray, rise: float) -> int:
    """Return how many times ``way`` rose by ``rise`` above the least so far and then fell below that least."""
    count, least, most = 0, way[0], way[0]
    for now in way[1:]:
        if now < least:
            count += most - least >= rise
            least = most = now
        most = max(most, now)
    return int(count)


@dataclass(frozen=True)
class Recoveries:
    """The recoveries of an episode, as a measure of ``evaluate`` (``measures={recoveries: ...}``)."""

    person: Watcher  # who sees how far the goal is
    rise: float = 0.02

    def __post_init__(self) -> None:
        if not self.rise > 0:
            raise UserError(f"measures.recoveries.rise={self.rise}; it must be above 0 metres")

    def __call__(self, episode: Episode) -> float:
        """Return the number of recoveries."""
        truth = None if episode.environment_state is None else episode.environment_state[:, None]
        return float(recoveries(self.person.way(Obs({}, episode.state[:, None], truth, (episode.task,) * (len(episode) + 1))), self.rise))
