"""From recorded clips to the tensors a world model trains on, and from its outputs back to observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robowm.data.normalize import Normalizer
from robowm.data.sampler import ClipSampler
from robowm.data.spec import StoreSpec
from robowm.errors import UserError
from robowm.types import ClipBatch
from robowm.world_model.model import Context


@dataclass(frozen=True)
class Layout:
    """What a model sees and predicts, in which order; stored with its checkpoint."""

    cameras: tuple[str, ...]
    pinned: tuple[str, ...]  # cameras whose first frame stays in the context
    size: tuple[int, int]  # height, width of every camera
    context: int  # K
    chunk: int  # F
    state: Normalizer
    action: Normalizer

    @classmethod
    def of(cls, spec: StoreSpec, pinned: Sequence[str], context: int, chunk: int, state: Normalizer, action: Normalizer) -> Layout:
        """Return the layout of data of ``spec``. All cameras must have one size, since they are stacked on channels."""
        sizes = {tuple(size) for size in spec.cameras.values()}
        if len(sizes) != 1:
            raise UserError(f"a world model needs cameras of one size, found {dict(spec.cameras)}; record or import them at one size")
        spec.check_cameras(list(pinned), "world_model.pinned")
        return cls(tuple(spec.cameras), tuple(pinned), sizes.pop(), context, chunk, state, action)

    @property
    def obs_offsets(self) -> list[int]:
        return list(range(1 - self.context, self.chunk + 1))

    @property
    def action_offsets(self) -> list[int]:
        return list(range(self.chunk))

    def to_json(self) -> dict:
        return {**vars(self), "state": self.state.to_json(), "action": self.action.to_json()}

    @classmethod
    def from_json(cls, record: Mapping) -> Layout:
        tuples = {key: tuple(record[key]) for key in ("cameras", "pinned", "size")}
        normalizers = {key: Normalizer.from_json(record[key]) for key in ("state", "action")}
        return cls(**tuples, context=record["context"], chunk=record["chunk"], **normalizers)


@dataclass(frozen=True)
class Clips:
    """A training batch: clips and the first frames of their episodes."""

    batch: ClipBatch
    first: dict[str, Tensor]  # {pinned camera: uint8 [B, h, w, 3]}


def clips_of(sampler: ClipSampler, step: int, layout: Layout) -> Clips:
    """Return batch ``step`` with the pinned first frames, a pure function of the sampler's seed and ``step``."""
    numbers = sampler.draw(step)
    first = sampler.starts(numbers, layout.pinned)
    return Clips(sampler.clips(numbers), {camera: rows[:, 0] for camera, rows in first.items()})


def to_tensors(clips: Clips, layout: Layout) -> tuple[Tensor, Tensor, Context]:
    """Return target frames f32 [B, F, C, h, w], target states f32 [B, F, S] and the clean context."""
    frames, state = stack(clips.batch.frames, layout.cameras), layout.state.normalize(clips.batch.state)
    action = layout.action.normalize(clips.batch.action)
    pinned = stack({c: rows[:, None] for c, rows in clips.first.items()}, layout.pinned)[:, 0]
    level = torch.zeros(len(frames), device=frames.device)
    k = layout.context
    return frames[:, k:], state[:, k:], Context(pinned, frames[:, :k], level, state[:, :k], action)


def stack(frames: Mapping[str, Tensor], cameras: Sequence[str]) -> Tensor:
    """Map uint8 [B, K, h, w, 3] of each camera to f32 [B, K, 3 V, h, w] in [-1, 1]; empty for no camera."""
    if not cameras:
        b, k, h, w, _ = next(iter(frames.values())).shape
        return torch.zeros(b, k, 0, h, w)
    return torch.cat([frames[c].permute(0, 1, 4, 2, 3) for c in cameras], 2).float() / 127.5 - 1


def unstack(pictures: Tensor, cameras: Sequence[str]) -> dict[str, np.ndarray]:
    """Map f32 [B, K, 3 V, h, w] in [-1, 1] to uint8 [B, K, h, w, 3] of each camera."""
    whole = ((pictures.float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(0, 1, 3, 4, 2).cpu().numpy()
    return {c: np.ascontiguousarray(whole[..., 3 * i : 3 * i + 3]) for i, c in enumerate(cameras)}
