"""From plans to single actions, as pure functions.

    M actions left of the plan that is being executed, H actions of a fresh one, A entries each

A fresh plan was begun d steps ago, so its first d actions belong to the past. What is left of it takes over at once, or is faded in over
the next steps, or was sampled so that it agrees with what was executed meanwhile (real-time chunking, arXiv 2506.07339).
"""

from __future__ import annotations

import math

import numpy as np


def joined(left: np.ndarray, fresh: np.ndarray, delay: int, width: int) -> np.ndarray:
    """Return what to execute from now on f32 [H - delay, A]: ``fresh`` [H, A] without its first ``delay`` actions, faded in.

    Over the first ``width`` of them, as far as ``left`` [M, A] reaches, the share of the fresh plan grows in equal steps: 1 / (width + 1),
    2 / (width + 1), ... ``width`` 0 switches at once. A plan that took longer than it lasts leaves nothing, [0, A].
    """
    ahead = fresh[delay:].copy()
    overlap = min(width, len(left), len(ahead))
    share = (np.arange(1, overlap + 1) / (width + 1))[:, None]
    ahead[:overlap] = (1 - share) * left[:overlap] + share * ahead[:overlap]
    return ahead


def prefix_weights(delay: int, left: int, horizon: int) -> np.ndarray:
    """Return f32 [H]: how strongly each action of a fresh plan is held to the plan before it (real-time chunking, eq. 5).

    1 for the ``delay`` actions that will have been executed when it arrives, then decaying to 0 at the end of the ``left`` actions that the
    two plans share, 0 beyond.
    """
    i = np.arange(horizon)
    c = (left - i) / (left - delay + 1) if left >= delay else np.zeros(horizon)
    decay = c * np.expm1(c) / (math.e - 1)
    return np.where(i < min(delay, left), 1.0, np.where(i < left, decay, 0.0)).astype(np.float32)
