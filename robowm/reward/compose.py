"""A weighted sum of rewards that keeps every raw term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robowm.errors import UserError
from robowm.protocols import Reward
from robowm.types import ClipBatch, Score


@dataclass(frozen=True)
class WeightedSum:
    """Satisfies ``Reward``: total = sum over terms of weight * term, over the terms of all ``rewards``."""

    rewards: Sequence[Reward]
    weights: Mapping[str, float]

    def __call__(self, clip: ClipBatch, reference: ClipBatch | None = None) -> Score:
        """Score ``clip``. Raises UserError unless the terms' names are exactly the weights' names."""
        return weigh([reward(clip, reference) for reward in self.rewards], self.weights)


def weigh(scores: Sequence[Score], weights: Mapping[str, float]) -> Score:
    """Join the terms of ``scores`` and weigh them."""
    names = [name for score in scores for name in score.terms]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"two rewards give a term named {repeated[0]!r}; each term needs its own name")
    if set(names) != set(weights) or not names:
        raise UserError(f"reward terms {sorted(names)} and weights {sorted(weights)} differ; give each term one weight (0 switches it off)")
    terms = {name: term for score in scores for name, term in score.terms.items()}
    return Score(sum(weights[name] * term for name, term in terms.items()), terms)
