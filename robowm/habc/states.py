"""The states that critics learn from: latents of whole episodes with the credit of their steps, and batches of them.

M states of all episodes, J of them with a viability label, K with steps to go, D entries of a latent, B a batch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from robowm.data.clips import first_rows
from robowm.habc.credit import Credit
from robowm.habc.critics import Batch

Encoded = tuple[np.ndarray, Credit]  # latents f32 [T + 1, D] of an episode and the credit of its T steps


@dataclass(frozen=True)
class States:
    """Labelled states of some episodes, as rows of ``latent``."""

    latent: np.ndarray  # f32 [M, D]
    judged: np.ndarray  # int64 [J]
    outcome: np.ndarray  # f32 [J], 1 or 0
    ahead: np.ndarray  # bool [J], the goal has not held yet
    judged_odds: np.ndarray  # f64 [J], how often each is drawn, in sum 1
    timed: np.ndarray  # int64 [K]
    togo: np.ndarray  # f32 [K], chunks until success
    after: np.ndarray  # int64 [K], the state at the end of the window
    span: np.ndarray  # f32 [K], chunks until there
    arrives: np.ndarray  # bool [K]
    timed_odds: np.ndarray  # f64 [K]

    @classmethod
    def of(cls, stores: Sequence[Sequence[Encoded]], shares: Sequence[float], chunk: int) -> States:
        """Return the states of the episodes of each store; a store without labels leaves its share to the others."""
        latents = [latent for episodes in stores for latent, _ in episodes]
        credits = [credit for episodes in stores for _, credit in episodes]
        lengths = [len(credit.outcome) for credit in credits]
        store = np.repeat(np.repeat(np.arange(len(stores)), [len(episodes) for episodes in stores]), lengths)
        first = first_rows(np.array([len(latent) for latent in latents], np.int64))
        row = np.repeat(first, lengths) + np.concatenate([np.arange(length) for length in lengths])

        def joined(name: str) -> np.ndarray:
            return np.concatenate([getattr(credit, name) for credit in credits])

        outcome, timed, span = joined("outcome"), joined("timed"), joined("span")
        judged = np.isfinite(outcome)
        return cls(
            latent=np.concatenate(latents),
            judged=row[judged],
            outcome=outcome[judged],
            ahead=joined("togo")[judged] > 0,
            judged_odds=odds(store[judged], shares),
            timed=row[timed],
            togo=(joined("togo")[timed] / chunk).astype(np.float32),
            after=(row + span)[timed],
            span=(span[timed] / chunk).astype(np.float32),
            arrives=joined("arrives")[timed],
            timed_odds=odds(store[timed], shares),
        )

    def batch(self, judged: np.ndarray, timed: np.ndarray) -> Batch:
        """Return the states ``judged`` int [B] of J and ``timed`` int [B] of K."""
        arrays = {
            "judged": self.latent[self.judged[judged]],
            "outcome": self.outcome[judged],
            "timed": self.latent[self.timed[timed]],
            "togo": self.togo[timed],
            "after": self.latent[self.after[timed]],
            "span": self.span[timed],
            "arrives": self.arrives[timed],
        }
        return Batch(**{name: torch.from_numpy(array) for name, array in arrays.items()})


class StateSampler:
    """Draws batches. ``batch(step)`` is a pure function of (seed, step)."""

    def __init__(self, states: States, batch_size: int, seed: int) -> None:
        self._states, self._size, self._seed = states, batch_size, seed
        self._cumulated = np.cumsum(states.judged_odds), np.cumsum(states.timed_odds)

    def batch(self, step: int) -> Batch:
        """Return as many states with a viability label as with steps to go."""
        rng = np.random.default_rng([self._seed, step])
        return self._states.batch(*(_draw(rng, cumulated, self._size) for cumulated in self._cumulated))


def odds(store: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Return f64 [N], in sum 1: states of ``store`` int [N], drawn by their stores' shares and evenly within each."""
    found = (np.asarray(shares, float) / np.maximum(np.bincount(store, minlength=len(shares)), 1))[store]
    return found / found.sum() if len(found) else found


def _draw(rng: np.random.Generator, cumulated: np.ndarray, size: int) -> np.ndarray:
    """Return int64 [size] numbers by their cumulated odds f64 [N], none where there are none to draw from."""
    if not len(cumulated):
        return np.zeros(0, np.int64)
    return np.minimum(np.searchsorted(cumulated, rng.random(size), side="right"), len(cumulated) - 1)
