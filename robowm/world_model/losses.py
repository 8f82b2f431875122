"""The supervised objective: denoise the true next rows, given a context that has been made as imperfect as the model's own will be.

Levers against drift, all free: noise on the recent context rows with its level as an input (GameNGen, Valevski et al. 2024), histories
that repeat the current frame, as at the start of a rollout (Ctrl-World, Guo et al. 2025), and a first frame that stays pinned and clean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from robowm.data.shares import StoreShare
from robowm.data.store import EpisodeStore
from robowm.diffusion.flow import add_noise, draw_levels
from robowm.errors import UserError
from robowm.metrics.fidelity import LPIPS_SMALLEST, lpips
from robowm.types import MASK, MASK_CHANNELS, ClipBatch
from robowm.world_model.model import Context, Design, WorldModelNet

MOVING = ("object", "gripper")  # channels of a mask that foreground_weight looks at
PINNED = -(10**6)  # an observation offset before any episode's start: clip readers repeat the first row there


def offsets(design: Design, chunks: int = 1) -> tuple[list[int], list[int]]:
    """Return the observation and action offsets of a training clip: pinned row, k recent rows, the rows and actions of some chunks."""
    first, length = [PINNED] if design.pinned else [], chunks * design.chunk
    return [*first, *range(1 - design.context, length + 1)], list(range(length))


def check_fits(shares: Sequence[StoreShare], key: str, value: int, unit: int, *, more: int = 0, least: int = 1) -> None:
    """Raise UserError unless every store has an episode that a clip of ``unit`` times (``value`` + ``more``) steps fits into.

    Clips never pass an episode's end. ``key`` is the setting that has this ``value``, at least ``least``. Empty stores pass here.
    """
    lengths = {}
    for share in shares:
        kept = [meta.length for meta in EpisodeStore.open(share.path).metas if not share.only_success or meta.success == 1]
        lengths |= {share.path: max(kept)} if kept else {}
    if not lengths or min(lengths.values()) >= unit * (value + more):
        return
    path = min(lengths, key=lengths.__getitem__)
    largest = lengths[path] // unit - more
    fits = f"set it to {largest} at most" if largest >= least else f"not even {least} fits: train with a smaller world_model.chunk"
    raise UserError(
        f"{key}={value} needs clips of {unit * (value + more)} steps, the longest episode of {path} has {lengths[path]}; {fits}, or leave "
        "that store out"
    )


def masks_of(shares: Sequence[StoreShare], cameras: Sequence[str]) -> list[str]:
    """Return the names of the masks of ``cameras``; UserError for the first store that was recorded without them."""
    named = [EpisodeStore.open(share.path).spec.masks(cameras, str(share.path)) for share in shares]
    return named[0]


def steps_of(net: WorldModelNet, batch: ClipBatch, part: slice) -> ClipBatch:
    """Return ``batch`` with the frames after the steps ``part`` alone, and with their validity and weights."""
    ahead = slice(net.context_rows + part.start, net.context_rows + part.stop)
    frames = {name: frames[:, ahead] for name, frames in batch.frames.items()}
    return replace(batch, frames=frames, action_valid=batch.action_valid[:, part], weight=batch.weight[:, part])


def clip_rows(net: WorldModelNet, batch: ClipBatch) -> tuple[Tensor, Tensor]:
    """Return a clip's rows f32 [B, C+F, D] and its normalised actions f32 [B, F, A]."""
    return net.layout.pack(batch.frames, net.normalize_state.normalize(batch.state)), net.normalize_action.normalize(batch.action)


def masked_mean(errors: Tensor, valid: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean of ``errors`` [B, F] over ``valid`` bool [B, F]; invalid entries reach neither value nor gradient."""
    if not valid.any():
        raise UserError("a batch holds no valid step to predict; the episodes are shorter than the world model's chunk")
    return (errors.where(valid, 0) * weight).sum() / valid.sum()


def foreground_errors(net: WorldModelNet, error: Tensor, frames: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return {"object" | "gripper": f32 [B, F]}: means of the squared ``error`` [B, F, D] over the pixels where a mask shows it.

    ``frames`` {"<camera>_mask": uint8 [B, F, h, w, 3]}. Cameras that show it count alike, however large it is there; 0 where none does.
    """
    error = net.layout.video(error).mean(-3)  # [B, F, V, h, w]
    found = {}
    for name in MOVING:
        mask = torch.stack([frames[camera + MASK][..., MASK_CHANNELS[name]] > 0 for camera in net.layout.cameras], 2)
        size = mask.sum((-1, -2))  # [B, F, V], 0 where a camera does not show it
        views = (error * mask).sum((-1, -2)) / size.clamp_min(1)
        found[name] = views.sum(-1) / (size > 0).sum(-1).clamp_min(1)
    return found


def worsened(rows: Tensor, scale: Tensor, largest: float, pinned: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Add noise of level h ~ U(0, largest), one per clip, to context rows [B, C, D]; return them and the levels [B, C].

    ``scale`` [D] says how much a level means for each entry. The pinned row is real in every rollout and stays clean.
    """
    batch, count, _ = rows.shape
    level = torch.rand((batch, 1), generator=generator, device=rows.device).mul(largest).expand(batch, count).clone()
    if pinned:
        level[:, 0] = 0
    noise = torch.randn(rows.shape, generator=generator, device=rows.device)
    return rows + level[..., None] * scale * noise, level


def cold_started(rows: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Replace whole histories [B, C, D] by their last row with probability ``share``: what a rollout's first chunk sees."""
    cold = torch.rand((len(rows), 1, 1), generator=generator, device=rows.device) < share
    return rows[:, -1:].expand_as(rows).where(cold, rows)


@dataclass(frozen=True)
class TeacherForcing:
    """Loss for ``robowm.train.learner``: true context, worsened; mean squared error of the clean estimate, per row."""

    context_noise: float = 0.3  # largest noise level of the context; 0 switches it off
    state_noise: float = 0.1  # the same level means this much for proprioception, relative to pixels
    cold_start: float = 0.15  # share of clips whose context repeats the current row
    pure_noise: float = 0.8  # share of clips whose rows to predict are pure noise
    own_levels: float = 0.0  # share of clips whose rows have a noise level each (Diffusion Forcing, Chen et al. 2024): for lag > 0
    state_weight: float = 1.0  # of the proprioception's error beside the pixels'
    perceptual_weight: float = 0.1  # of LPIPS beside the pixels' error; 0 switches it off
    perceptual_pictures: int = 8  # pictures of a batch that it looks at, drawn anew each time; all of them cost as much as the network
    foreground_weight: float = 0.0  # of the error where the object is and of that where the gripper is, on stores with masks
    chunks: ClassVar[int] = 1  # of a training clip

    def __call__(self, net: WorldModelNet, batch: ClipBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        rows, action = clip_rows(net, batch)
        context, clean = rows[:, : net.context_rows], rows[:, net.context_rows :]
        context = self.corrupt(net, context, generator)
        return self.denoise(net, clean, Context(*context, action), steps_of(net, batch, slice(0, clean.shape[1])), generator)

    def corrupt(self, net: WorldModelNet, context: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return context rows [B, C, D] as training shows them, and their noise levels [B, C]."""
        scale = torch.ones(net.layout.dim, device=context.device)
        scale[net.layout.pixels :] = self.state_noise
        context = cold_started(context, self.cold_start, generator)
        return worsened(context, scale, self.context_noise, bool(net.design.pinned), generator)

    def denoise(
        self, net: WorldModelNet, clean: Tensor, context: Context, batch: ClipBatch, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted loss of denoising ``clean`` [B, F, D] in ``context``, and its raw terms."""
        level = draw_levels((len(clean), 1), self.pure_noise, generator).expand(clean.shape[:2])
        if self.own_levels > 0:
            apart = torch.rand((len(clean), 1), generator=generator, device=clean.device) < self.own_levels
            level = draw_levels(clean.shape[:2], self.pure_noise, generator).where(apart, level)
        noise = torch.randn(clean.shape, generator=generator, device=clean.device)
        return self.compare(net, net.x0(add_noise(clean, noise, level), level, context), clean, batch, generator)

    def compare(
        self, net: WorldModelNet, estimate: Tensor, clean: Tensor, batch: ClipBatch, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted loss of an ``estimate`` [B, F, D] of the ``clean`` rows, and its raw terms; ``batch`` is theirs alone."""
        estimate = estimate.float()
        error = (estimate - clean).square()
        terms = {
            "pixels": masked_mean(error[..., : net.layout.pixels].mean(-1), batch.action_valid, batch.weight),
            "state": masked_mean(error[..., net.layout.pixels :].mean(-1), batch.action_valid, batch.weight),
        }
        loss = terms["pixels"] + self.state_weight * terms["state"]
        if self.perceptual_weight > 0:
            terms["perceptual"] = self.perceptual(net, estimate, clean, batch, generator)
            loss = loss + self.perceptual_weight * terms["perceptual"]
        if self.foreground_weight > 0:
            for name, errors in foreground_errors(net, error, batch.frames).items():
                terms[name] = masked_mean(errors, batch.action_valid, batch.weight)
                loss = loss + self.foreground_weight * terms[name]
        return loss, terms

    def perceptual(self, net: WorldModelNet, estimate: Tensor, clean: Tensor, batch: ClipBatch, generator: torch.Generator) -> Tensor:
        """Return the mean LPIPS of some pictures of ``estimate`` and ``clean`` [B, F, D] (L_ACC of MWM, arXiv 2603.07799, per frame).

        The squared error alone prefers a blur where an object may be; this does not. Pictures are drawn from valid steps.
        """
        if min(net.layout.size) < LPIPS_SMALLEST:
            height, width = net.layout.size
            raise UserError(
                f"LPIPS needs pictures of at least {LPIPS_SMALLEST} pixels, found {height}x{width}; set loss.perceptual_weight=0"
            )
        views = [net.layout.video(rows)[batch.action_valid].flatten(0, 1).movedim(1, -1) for rows in (estimate, clean)]  # [M, h, w, 3]
        weight = batch.weight[batch.action_valid].repeat_interleave(len(net.layout.cameras))
        drawn = torch.randperm(len(weight), generator=generator, device=weight.device)[: self.perceptual_pictures]
        shown, true = ((pictures[drawn] + 1) * 127.5 for pictures in views)
        return (lpips(shown, true) * weight[drawn]).mean()
