"""Where to drive back to, as pure functions of the path so far.

T states of this episode, S entries; M states of demonstrations; A entries of an action
"""

from __future__ import annotations

import numpy as np

SPREAD = 95.0  # percentile of the demonstrations' own nearest distances within which a state is familiar
MOST = 4000  # demonstrated states that are compared with, evenly picked


class Familiar:
    """Tells whether a robot's state is one that demonstrations pass through: as near to one of theirs as they are to each other's."""

    def __init__(self, episodes: list[np.ndarray]) -> None:
        """``episodes``: states f32 [T_i, S] of at least two demonstrations."""
        if len(episodes) < 2:
            raise ValueError(f"familiar states need at least two demonstrations, found {len(episodes)}")
        states = np.concatenate(episodes).astype(float)
        of = np.repeat(np.arange(len(episodes)), [len(e) for e in episodes])
        keep = np.linspace(0, len(states) - 1, min(MOST, len(states))).astype(int)
        self._scale = np.maximum(states.std(0), 1e-6)  # [S]
        self._states, of = states[keep] / self._scale, of[keep]
        sample = np.linspace(0, len(keep) - 1, min(500, len(keep))).astype(int)
        distance = np.linalg.norm(self._states[sample, None] - self._states[None], axis=-1)
        distance[of[sample, None] == of[None]] = np.inf  # nearest state of another demonstration
        self.radius = float(np.percentile(distance.min(1), SPREAD))

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """Return bool [T] for states [T, S]."""
        scaled = np.asarray(states, float) / self._scale
        nearest = [np.linalg.norm(self._states - row, axis=1).min() for row in scaled]
        return np.array(nearest) <= self.radius


def rewind_to(steps_back: int, familiar: np.ndarray) -> int:
    """Return the row to drive back to: at least ``steps_back`` rows before the last, and from there the latest ``familiar`` one.

    ``familiar`` bool [T + 1] (all True where nothing is known). Row 0 where no earlier one is familiar.
    """
    latest = max(len(familiar) - 1 - steps_back, 0)
    known = np.flatnonzero(familiar[: latest + 1])
    return int(known[-1]) if len(known) else 0


def path_back(commands: np.ndarray, row: int) -> np.ndarray:
    """Return the targets f64 [T - row, A] that lead back along ``commands`` [T + 1, A] to the one that led to ``row``, the last of them.

    Row 0 of ``commands`` is the pose at the start, row t + 1 what was sent at step t: unlike measured poses they keep a gripper's grip.
    """
    return np.asarray(commands, float)[row:-1][::-1].copy()
