"""Index arithmetic of clips: which rows of which episode make a clip, and where clips may start. Pure functions of integers.

An anchor is a step t of an episode of T steps. ``obs_offsets`` [K] and ``action_offsets`` [H] are added to it: observation rows run from
0 to T, action rows from 0 to T-1. A row outside its own episode is replaced by the nearest inside and marked invalid, so a window never
shows another episode. A diffusion policy with 2 observations and horizon 16 has offsets (-1, 0) and (-1, 0, ..., 14); a world model with
2 context frames that predicts 4 has (-1, 0, 1, 2, 3, 4) and (0, 1, 2, 3): the action at offset k leads from row k to row k + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from robowm.errors import UserError

Anchors = tuple[np.ndarray, np.ndarray]  # (episode int64 [M], step int64 [M])


def window(lengths: np.ndarray, episodes: np.ndarray, anchors: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows int64 [B, K] inside the episodes and valid bool [B, K]. ``lengths`` [E] counts rows (T + 1 for observations)."""
    rows = anchors[:, None] + np.asarray(offsets, np.int64)[None, :]
    last = lengths[episodes][:, None] - 1
    inside = np.clip(rows, 0, np.maximum(last, 0))
    return inside, (rows >= 0) & (rows <= last)


def first_rows(lengths: np.ndarray) -> np.ndarray:
    """Return int64 [E]: where each episode's rows begin when all are laid end to end."""
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64) if len(lengths) else np.zeros(0, np.int64)


def span_anchors(first: np.ndarray, stop: np.ndarray) -> Anchors:
    """Return every anchor from ``first`` [E] to ``stop`` [E] (exclusive) of each episode."""
    counts = np.maximum(stop - first, 0)
    episodes = np.repeat(np.arange(len(counts)), counts)
    steps = np.arange(counts.sum()) - np.repeat(first_rows(counts), counts) + np.repeat(first, counts)
    return episodes, steps.astype(np.int64)


def policy_anchors(lengths: np.ndarray, obs_offsets: Sequence[int], action_offsets: Sequence[int]) -> Anchors:
    """Every step: clips reach over both ends of the episode and are padded there."""
    return span_anchors(np.zeros_like(lengths), lengths)


def row_anchors(lengths: np.ndarray, obs_offsets: Sequence[int], action_offsets: Sequence[int]) -> Anchors:
    """Every observation row, the last one included: for classifiers of single frames."""
    return span_anchors(np.zeros_like(lengths), lengths + 1)


def start_anchors(lengths: np.ndarray, obs_offsets: Sequence[int], action_offsets: Sequence[int]) -> Anchors:
    """Step 0 of every episode that has at least one step."""
    return span_anchors(np.zeros_like(lengths), np.minimum(lengths, 1))


def inside_anchors(lengths: np.ndarray, obs_offsets: Sequence[int], action_offsets: Sequence[int]) -> Anchors:
    """Steps whose clips lie inside the episode on both sides. Episodes that are too short have none."""
    first = max(0, -min([*obs_offsets, *action_offsets]))
    return span_anchors(np.full_like(lengths, first), _stop(lengths, obs_offsets, action_offsets))


def future_anchors(lengths: np.ndarray, obs_offsets: Sequence[int], action_offsets: Sequence[int]) -> Anchors:
    """Steps whose clips do not pass the episode's end; before its start the first row is repeated (and marked invalid)."""
    return span_anchors(np.zeros_like(lengths), _stop(lengths, obs_offsets, action_offsets))


ANCHORS: dict[str, Callable[[np.ndarray, Sequence[int], Sequence[int]], Anchors]] = {
    "policy": policy_anchors,
    "rows": row_anchors,
    "start": start_anchors,
    "inside": inside_anchors,
    "future": future_anchors,
}


def check_offsets(obs_offsets: Sequence[int], action_offsets: Sequence[int]) -> None:
    """Raise UserError unless both are non-empty integers in ascending order."""
    for name, offsets in (("obs_offsets", obs_offsets), ("action_offsets", action_offsets)):
        if len(offsets) == 0 or any(int(o) != o for o in offsets) or any(b <= a for a, b in pairwise(offsets)):
            raise UserError(f"{name} is {list(offsets)}; it must be a list of integers in ascending order")


def _stop(lengths: np.ndarray, obs_offsets: Sequence[int], action_offsets: Sequence[int]) -> np.ndarray:
    """One past the last anchor t with t + obs <= T and t + action <= T - 1."""
    return lengths + 1 - max(0, *obs_offsets, *(offset + 1 for offset in action_offsets))
