"""From the rewards of K candidates to how much each should be learned from. Pure functions.

    G groups (one self-generated history each), K candidate continuations of it

Following DiffusionNFT (Zheng et al., arXiv 2509.16117, section 3) with PersistWorld's clip at 1 (Bardhan et al., arXiv 2603.25685), which
spreads r over the whole of [0, 1] instead of bunching it around one half.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

EPS = 1e-4  # keeps a group of equal rewards finite


def group_advantages(reward: Tensor) -> Tensor:
    """Return A = (R - mean) / (std + 1e-4) within each group: f32 [G, K] to the same."""
    _check(reward)
    centred = reward - reward.mean(1, keepdim=True)
    return centred / (reward.std(1, keepdim=True, correction=0) + EPS)


def mixed_advantages(rewards: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Return the weighted mean of the advantages f32 [G, K] of each of ``rewards`` {metric: [G, K], larger is better}.

    Kept apart until here, no metric drowns the others by its spread (WorldCompass, arXiv 2602.09022; Astrolabe, arXiv 2603.17051).
    """
    total = sum(weights.values())
    return sum(weight / total * group_advantages(rewards[name]) for name, weight in weights.items())


def optimality(advantage: Tensor, clip: float = 1.0) -> Tensor:
    """Return r = (clip(A, -c, c) / c + 1) / 2 in [0, 1]: 1 is to be imitated, 0 avoided, one half says nothing."""
    if not clip > 0:
        raise ValueError(f"advantages are clipped to [-clip, clip], found clip={clip}")
    return (advantage.clamp(-clip, clip) / clip + 1) / 2


def informative(reward: Tensor, smallest_std: float) -> Tensor:
    """Return bool [G]: the candidates of a group differ by more than ``smallest_std``, the noise of the metric."""
    _check(reward)
    return reward.std(1, correction=0) > smallest_std


def top_and_bottom(reward: Tensor, best: int, worst: int) -> Tensor:
    """Return int64 [G, best + worst]: the candidates with the highest rewards, best first, then those with the lowest, worst last.

    The middle of a group says least and costs as much to train on. With ``worst`` 0 only the best are imitated (best of K).
    """
    _check(reward)
    if best < 1 or worst < 0 or best + worst > reward.shape[1]:
        raise ValueError(
            f"the best {best} and worst {worst} of {reward.shape[1]} candidates: take at least one best, and no more than there are"
        )
    order = reward.argsort(dim=1, descending=True, stable=True)
    return torch.cat([order[:, :best], order[:, reward.shape[1] - worst :]], 1)


def _check(reward: Tensor) -> None:
    if reward.dim() != 2 or reward.shape[1] < 2:
        raise ValueError(f"rewards are [groups, candidates] with at least two candidates, found {tuple(reward.shape)}")
