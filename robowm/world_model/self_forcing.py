"""Contexts that the model made itself: it rolls some chunks by its own, then learns the true next rows from there.

    B clips, C context rows (the pinned first one, then the last k), F rows a chunk, m chunks rolled, D entries of a row

Self-forwarded context as in DIAMOND's trainer (Alonso et al. 2024), with a depth drawn at random, which does better than a curriculum in
PersistWorld's ablation (Bardhan et al., arXiv 2603.25685). The target stays the truth, so this is supervised learning: the strongest dull
baseline of reinforcement learning on own rollouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import ClassVar

import torch
from torch import Tensor

from robowm.diffusion.sample import follow, sample
from robowm.errors import UserError
from robowm.types import ClipBatch
from robowm.world_model.losses import TeacherForcing, clip_rows, steps_of
from robowm.world_model.model import Context, WorldModelNet


def push(context: Tensor, rows: Tensor, pinned: bool) -> Tensor:
    """Return the context [B, C, D] after ``rows`` [B, F, D] more: the pinned row stays, of the others the newest k."""
    first, recent = context[:, : int(pinned)], context[:, int(pinned) :]
    return torch.cat([first, torch.cat([recent, rows], 1)[:, -recent.shape[1] :]], 1)


def roll(net: WorldModelNet, context: Tensor, action: Tensor, levels: Tensor, generator: torch.Generator) -> Tensor:
    """Return the context [B, C, D] after rolling free from true rows ``context`` under ``action``; see ``rolling``."""
    for _, after in rolling(net, context, action, levels, generator):
        context = after
    return context


@torch.no_grad()
def rolling(
    net: WorldModelNet, context: Tensor, action: Tensor, levels: Tensor, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Roll free from true rows ``context`` [B, C, D] under ``action`` f32 [B, m F, A]; yield each chunk [B, F, D] and the context after it.

    Chunks are sampled along the schedule ``levels`` [N+1, F] and rounded to grey levels, exactly as in imagination; memory is that of one
    chunk, however long the roll.
    """
    pinned, clean = bool(net.design.pinned), torch.zeros(context.shape[:2], device=context.device)
    for begin in range(0, action.shape[1], net.design.chunk):
        noise = torch.randn((len(context), net.design.chunk, net.layout.dim), generator=generator, device=context.device)
        given = Context(context, clean, action[:, begin : begin + net.design.chunk])
        rows = net.layout.rounded(sample(lambda x, level, c=given: net.x0(x, level, c), noise, levels))
        context = push(context, rows, pinned)
        yield rows, context


@dataclass(frozen=True)
class SelfForwarded:
    """Loss for ``robowm.train.learner``: with probability ``share`` a clip's context is the model's own after 1 to ``depth`` chunks.

    The other clips of a batch see the same chunk in its true context. Everything else is ``supervised``'s.
    """

    supervised: TeacherForcing = field(default_factory=TeacherForcing)
    depth: int = 3  # most chunks rolled before the supervised one
    share: float = 0.5  # of clips with a context of the model's own
    sampling_steps: int = 1

    def __post_init__(self) -> None:
        _check_depth(self.depth)

    @property
    def chunks(self) -> int:
        """Chunks of a training clip."""
        return self.depth + 1

    @property
    def own_levels(self) -> float:
        """Share of clips whose rows have a noise level each."""
        return self.supervised.own_levels

    @property
    def foreground_weight(self) -> float:
        """Weight of the errors where object and gripper are."""
        return self.supervised.foreground_weight

    def __call__(self, net: WorldModelNet, batch: ClipBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        rows, action = clip_rows(net, batch)
        count, size = net.context_rows, net.design.chunk
        begin = size * int(torch.randint(1, self.depth + 1, (), generator=generator, device=generator.device))
        own = roll(net, rows[:, :count], action[:, :begin], net.design.schedule(self.sampling_steps), generator)
        true = push(rows[:, :count], rows[:, count : count + begin], bool(net.design.pinned))
        chosen = torch.rand((len(rows), 1, 1), generator=generator, device=rows.device) < self.share
        context = self.supervised.corrupt(net, own.where(chosen, true), generator)
        clean = rows[:, count + begin : count + begin + size]
        part = slice(begin, begin + size)
        return self.supervised.denoise(net, clean, Context(*context, action[:, part]), steps_of(net, batch, part), generator)


@dataclass(frozen=True)
class SelfRollout:
    """Loss for ``robowm.train.learner``: every chunk of a free roll is compared with the truth, in the context that the model made.

    Self Forcing (Huang et al., arXiv 2506.08009) with the truth in place of a teacher, as ACC in MWM (arXiv 2603.07799): all chunks are
    denoised down to one step drawn at random, that step alone has a gradient, and its estimate, detached, becomes context. Noise levels
    are the sampler's. The first context is real and may be worsened as in teacher forcing.
    """

    depth: int = 4  # chunks rolled
    sampling_steps: int = 1
    context_noise: float = 0.0  # these seven as in TeacherForcing; the first three of the first context
    state_noise: float = 0.1
    cold_start: float = 0.0
    state_weight: float = 1.0
    perceptual_weight: float = 0.1
    perceptual_pictures: int = 8
    foreground_weight: float = 0.0
    own_levels: ClassVar[float] = 1.0  # with a lag, a row's levels are those that the sampler will ask for

    def __post_init__(self) -> None:
        _check_depth(self.depth)

    @property
    def chunks(self) -> int:
        """Chunks of a training clip."""
        return self.depth

    @property
    def shared(self) -> TeacherForcing:
        """What it has in common with teacher forcing: how a true context is worsened, how an estimate is compared with the truth."""
        names = {field.name for field in fields(self)} & {field.name for field in fields(TeacherForcing)}
        return TeacherForcing(**{name: getattr(self, name) for name in names})

    def __call__(self, net: WorldModelNet, batch: ClipBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        rows, action = clip_rows(net, batch)
        count, size, device, pinned = net.context_rows, net.design.chunk, rows.device, bool(net.design.pinned)
        levels = net.design.schedule(self.sampling_steps).to(device)
        last = int(torch.randint(0, len(levels) - 1, (), generator=generator, device=generator.device))
        context, noised = self._first(net, rows[:, :count], generator)
        losses, terms = [], []
        for begin in range(0, self.depth * size, size):
            part = slice(begin, begin + size)
            clip = steps_of(net, batch, part)
            if losses and not clip.action_valid.any():
                break  # the episodes end here
            given = Context(context, noised, action[:, part])
            noise = torch.randn((len(rows), size, net.layout.dim), generator=generator, device=device)
            with torch.no_grad():
                x = follow(lambda x, level, c=given: net.x0(x, level, c), noise, levels[: last + 1])
            unfinished = levels[last, :, None] > 0  # with a lag, the first rows of a chunk may be clean by now
            estimate = net.x0(x, levels[last].expand(x.shape[:2]), given).where(unfinished, x)
            loss, parts = self.shared.compare(net, estimate, rows[:, count + begin : count + begin + size], clip, generator)
            losses.append(loss)
            terms.append(parts)
            context = push(context, net.layout.rounded(estimate.detach().float()), pinned)
            noised = push(noised[..., None], torch.zeros((len(rows), size, 1), device=device), pinned)[..., 0]
        return torch.stack(losses).mean(), {name: torch.stack([part[name] for part in terms]).mean() for name in terms[0]}

    def _first(self, net: WorldModelNet, context: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the true context [B, C, D] as training shows it, and its noise levels [B, C]."""
        if not (self.context_noise or self.cold_start):
            return context, torch.zeros(context.shape[:2], device=context.device)  # and no random number is spent
        return self.shared.corrupt(net, context, generator)


def _check_depth(depth: int) -> None:
    if int(depth) != depth or depth < 1:
        raise UserError(f"loss.depth={depth}; chunks are rolled: give a whole number of at least 1, or take loss=teacher_forcing")
