"""Candidates to learn from: several continuations of one history that the model made itself, scored against what really followed.

    G groups (clips), C context rows, F rows a chunk, K candidates, M = G * (best + worst) candidates kept, D entries of a row

PersistWorld (Bardhan et al., arXiv 2603.25685): from one true observation the old model rolls a random number of chunks; from the frozen
history it then samples K candidates, alike but for their noise, and the best and worst of them are learned from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from robowm.diffusion.sample import sample
from robowm.errors import UserError, nearest
from robowm.reward.fidelity import WEIGHTS, check_metrics, fidelity_score
from robowm.rl.advantages import group_advantages, informative, mixed_advantages, optimality, top_and_bottom
from robowm.rl.reference import disagreement
from robowm.types import ClipBatch
from robowm.world_model.losses import clip_rows
from robowm.world_model.model import Context, WorldModelNet
from robowm.world_model.self_forcing import roll


@dataclass(frozen=True)
class Experience:
    """The kept candidates."""

    context: Context  # rows [M, C, D], level [M, C], action [M, F, A]
    sample: Tensor  # f32 [M, F, D], the candidate itself
    r: Tensor  # f32 [M], its optimality in [0, 1]
    overrated: Tensor  # f32 [M], by how many ranks the main metric prefers it to the other metrics; zeros without a main metric
    valid: Tensor  # bool [M, F], steps inside the episode, of groups whose candidates differ
    near: Tensor | None = None  # bool [M], held near the reference; None: not decided yet


@dataclass(frozen=True)
class Sampling:
    """How candidates come about."""

    depth: int = 6  # most chunks of the self-made history; 0 to depth, each as likely
    candidates: int = 16  # K
    best: int = 2  # candidates of a group that are learned from for being its best
    worst: int = 2  # ... and its worst
    steps: int = 4  # of the sampler: with one step candidates hardly differ
    smallest_std: float = 0.0  # groups whose rewards differ less are passed over
    clip: float = 1.0  # of advantages
    reward: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    mix: Mapping[str, float] | None = None  # {metric: weight} of advantages that are kept apart until mixed; None: rewards are summed
    main: str | None = None  # metric of the reward that the others check, see reference.py
    reward_noise: float = 0.0  # deviation of noise on the rewards; with weights of 0 they are random, a control

    def __post_init__(self):
        self._check_numbers()
        check_metrics(self.reward)
        for name in [*(self.mix or ()), *([] if self.main is None else [self.main])]:
            if name not in self.reward:
                raise UserError(f"nft.sampling: {name!r} is no metric of the reward; {nearest(name, self.reward)}")
        if self.main is not None and len(self.reward) < 2:
            raise UserError(f"nft.sampling.main={self.main} has no other metric to check it; name two or more in the reward")

    def _check_numbers(self) -> None:
        """Raise UserError where a number makes no sense, before anything is trained."""
        if self.best < 1 or self.worst < 0 or self.candidates < max(2, self.best + self.worst):
            raise UserError(
                f"nft.sampling: the best={self.best} and worst={self.worst} of candidates={self.candidates}; "
                "take at least one best, and no more than there are of two or more"
            )
        if self.depth < 0 or int(self.depth) != self.depth or self.steps < 1 or not self.clip > 0:
            raise UserError(
                f"nft.sampling: depth={self.depth} (a whole number from 0 on), steps={self.steps} (1 or more), clip={self.clip} (above 0)"
            )
        weights = {f"reward.{name}": weight for name, weight in self.reward.items()} | {"reward_noise": self.reward_noise}
        weights |= {f"mix.{name}": weight for name, weight in (self.mix or {}).items()}
        for name, weight in weights.items():
            if not math.isfinite(weight):
                raise UserError(f"nft.sampling.{name}={weight}; give a finite number")
        if self.mix is not None and (min(self.mix.values(), default=0) < 0 or not sum(self.mix.values()) > 0):
            raise UserError(f"nft.sampling.mix={dict(self.mix)}; weights are at least 0, and one is above")

    @property
    def chunks(self) -> int:
        """Chunks of a clip."""
        return self.depth + 1


@torch.no_grad()
def gather(old: WorldModelNet, batch: ClipBatch, how: Sampling, generator: torch.Generator) -> tuple[Experience, dict[str, Tensor]]:
    """Return experience from clips of ``how.chunks`` chunks, and the raw reward terms and their spread for the log."""
    rows, action = clip_rows(old, batch)
    size, count, device = old.design.chunk, old.context_rows, rows.device
    begin = size * int(torch.randint(0, how.depth + 1, (), generator=generator, device=generator.device))
    start = torch.cat([rows[:, : count - old.design.context], rows[:, count - 1 : count].expand(-1, old.design.context, -1)], 1)
    history = roll(old, start, action[:, :begin], old.design.schedule(how.steps), generator)
    part = slice(begin, begin + size)
    context = Context(history, torch.zeros(history.shape[:2], device=device), action[:, part])
    candidates = continuations(old, context, how, generator)  # [G, K, F, D]
    valid = batch.action_valid[:, part]
    ahead = slice(count + begin, count + begin + size)
    masks = {name: frames[:, ahead] for name, frames in batch.frames.items() if name not in old.layout.cameras}
    reward, terms = score(old, candidates, rows[:, ahead], masks, valid, how.reward)
    reward = reward + how.reward_noise * torch.randn(reward.shape, generator=generator, device=device)
    metrics = by_metric(terms, how.reward)
    advantage = group_advantages(reward) if how.mix is None else mixed_advantages(metrics, how.mix)
    kept = top_and_bottom(advantage, how.best, how.worst)  # [G, best + worst]
    r = optimality(advantage, how.clip).gather(1, kept)
    others = [metrics[name] for name in metrics if name != how.main]
    overrated = torch.zeros_like(reward) if how.main is None else disagreement(metrics[how.main], torch.stack(others))
    told = informative(reward, how.smallest_std)
    group = torch.arange(len(rows), device=device).repeat_interleave(kept.shape[1])
    chosen = Context(context.rows[group], context.level[group], context.action[group])
    experience = Experience(
        chosen, candidates[group, kept.flatten()], r.flatten(), overrated.gather(1, kept).flatten(), (valid & told[:, None])[group]
    )
    spread = {"reward_std": reward.std(1, correction=0).mean(), "informative": told.float().mean()}
    return experience, {
        "reward": reward.mean(),
        **spread,
        **{name: term.nanmean() for name, term in terms.items() if not term.isnan().all()},
    }


def continuations(old: WorldModelNet, context: Context, how: Sampling, generator: torch.Generator) -> Tensor:
    """Return K samples f32 [G, K, F, D] of the chunk after each context, by ancestral sampling, rounded as they would be shown."""
    repeated = Context(*(x.repeat_interleave(how.candidates, 0) for x in (context.rows, context.level, context.action)))
    shape = (len(repeated.rows), old.design.chunk, old.layout.dim)
    levels = old.design.schedule(how.steps)
    noise = torch.randn((len(levels) - 1, *shape), generator=generator, device=context.rows.device)
    found = sample(lambda x, level: old.x0(x, level, repeated), noise[0], levels, fresh=noise[1:])
    return old.layout.rounded(found).unflatten(0, (-1, how.candidates))


def score(
    net: WorldModelNet, candidates: Tensor, truth: Tensor, masks: Mapping[str, Tensor], valid: Tensor, weights: Mapping[str, float]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return rewards f32 [G, K] of ``candidates`` [G, K, F, D] against ``truth`` [G, F, D], and raw terms [G, K]: means over valid frames.

    ``masks`` {"<camera>_mask": uint8 [G, F, h, w, 3]} belong to the truth. A term that no valid frame of a group has is nan there.
    """
    shown, true = net.layout.frames(candidates), net.layout.frames(truth[:, None].expand_as(candidates))
    true |= {name: mask[:, None].expand(-1, candidates.shape[1], *mask.shape[1:]) for name, mask in masks.items()}
    found = fidelity_score(shown, true, weights)
    valid = valid[:, None].expand_as(found.total)
    weight = valid / valid.sum(-1, keepdim=True).clamp_min(1)
    return (found.total * weight).sum(-1), {name: term.where(valid, torch.nan).nanmean(-1) for name, term in found.terms.items()}


def by_metric(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> dict[str, Tensor]:
    """Return {metric: rewards f32 [G, K]} from raw ``terms`` {"metric/camera": [G, K]}: means over cameras, larger is better.

    What no camera shows (nan) counts as 0 for all candidates of the group alike.
    """
    found = {}
    for name, weight in weights.items():
        views = [term for term_name, term in terms.items() if term_name.split("/")[0] == name]
        found[name] = weight * torch.stack(views).nanmean(0).nan_to_num()
    return found
