"""The same fidelity, of the frames of one regime alone: free motion, contact, grasped, whatever a simulator can tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robowm.errors import UserError
from robowm.types import Episode

Regimes = Callable[[Episode], Mapping[str, np.ndarray]]  # {name: bool [T+1]}: which observation rows are in the regime


def name_of(regimes: Regimes) -> str:
    """Return what the masks depend on, the same in every process: a function's import path and keywords, anything else's repr."""
    function = getattr(regimes, "func", regimes)  # of a partial
    if not hasattr(function, "__qualname__"):
        return repr(regimes)
    given = ", ".join(f"{key}={value!r}" for key, value in getattr(regimes, "keywords", {}).items())
    return f"{function.__module__}.{function.__qualname__}({given})"


@dataclass(frozen=True)
class RegimeScores:
    """A ``Measure``: the means of ``psnr/<camera>`` and its like over the predicted frames of each regime, as ``psnr/<camera>@<regime>``.

    An episode without such a frame within the horizon lacks the metric.
    """

    regimes: Regimes

    @property
    def name(self) -> str:
        """See Measure."""
        return name_of(self.regimes)

    def __call__(
        self, shown: Mapping[str, np.ndarray], scores: Mapping[str, np.ndarray], group: Sequence[Episode]
    ) -> list[dict[str, float]]:
        """See Measure; ``shown`` is not looked at."""
        return [
            {
                f"{metric}@{regime}": float(curves[i][rows].mean())
                for regime, rows in self._rows(episode, next(iter(scores.values())).shape[1]).items()
                for metric, curves in scores.items()
            }
            for i, episode in enumerate(group)
        ]

    def _rows(self, episode: Episode, horizon: int) -> dict[str, np.ndarray]:
        """Return bool [L] of each regime that occurs in the ``horizon`` predicted frames."""
        found = {}
        for name, mask in self.regimes(episode).items():
            if not name.isidentifier() or name != name.lower() or name == "mean" or mask.shape != (len(episode) + 1,):
                raise UserError(
                    f"regimes gave {name!r} with shape {mask.shape} for an episode of {len(episode)} steps; "
                    "names are lower-case words other than 'mean', masks have a value for each of the T+1 rows"
                )
            if mask[1 : horizon + 1].any():
                found[name] = mask[1 : horizon + 1]
        return found
