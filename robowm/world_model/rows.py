"""A row is everything observed at one time step, as one vector: the pixels of all cameras, then proprioception.

With rows [B, K, D] the sampler, the losses and the ring buffer are plain tensor arithmetic, and noise levels per frame broadcast.
Pixels are scaled to [-1, 1], channels first; proprioception is normalised. D = V * 3 * h * w + S.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robowm.errors import UserError, nearest


@dataclass(frozen=True)
class RowLayout:
    """Which cameras and how much proprioception a row holds."""

    cameras: Mapping[str, tuple[int, int]]  # {camera: (height, width)}, in the order of the views
    state_dim: int

    def __post_init__(self):
        object.__setattr__(self, "cameras", {name: (int(h), int(w)) for name, (h, w) in self.cameras.items()})
        if not self.cameras:
            raise UserError("a world model needs at least one camera, found none; name some in `cameras`")
        if len(set(self.cameras.values())) > 1:
            sizes = ", ".join(f"{name} {h}x{w}" for name, (h, w) in self.cameras.items())
            raise UserError(f"a world model needs all cameras at one size, found {sizes}; record them alike or leave some out of `cameras`")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of every camera."""
        return next(iter(self.cameras.values()))

    @property
    def pixels(self) -> int:
        """Entries of a row that are pixels; they come first."""
        return len(self.cameras) * 3 * self.size[0] * self.size[1]

    @property
    def dim(self) -> int:
        """D."""
        return self.pixels + self.state_dim

    def pack(self, frames: Mapping[str, Tensor], state: Tensor) -> Tensor:
        """Make rows f32 [..., D] of uint8 [..., h, w, 3] per camera and normalised state [..., S]."""
        self.check(frames)
        video = torch.stack([frames[name] for name in self.cameras], -4).movedim(-1, -3)  # [..., V, 3, h, w]
        return self.join(video.to(torch.float32).div_(127.5).sub_(1), state.to(torch.float32))

    def join(self, video: Tensor, state: Tensor) -> Tensor:
        """Make rows [..., D] of pixels [..., V, 3, h, w] and state [..., S]."""
        return torch.cat([video.flatten(-4), state], -1)

    def video(self, rows: Tensor) -> Tensor:
        """Return the pixels [..., V, 3, h, w] of ``rows`` [..., D]."""
        return rows[..., : self.pixels].unflatten(-1, (len(self.cameras), 3, *self.size))

    def state(self, rows: Tensor) -> Tensor:
        """Return the proprioception [..., S] of ``rows``."""
        return rows[..., self.pixels :]

    def frames(self, rows: Tensor) -> dict[str, Tensor]:
        """Return {camera: uint8 [..., h, w, 3]}, pixels rounded to grey levels."""
        video = self.video(rows).clamp(-1, 1).add(1).mul(127.5).round().to(torch.uint8).movedim(-3, -1)
        return {name: video[..., i, :, :, :] for i, name in enumerate(self.cameras)}

    def rounded(self, rows: Tensor) -> Tensor:
        """Return ``rows`` with pixels as they come back from uint8, so that a model's memory holds what it showed."""
        video = rows[..., : self.pixels].clamp(-1, 1).add(1).mul(127.5).round().div(127.5).sub(1)
        return torch.cat([video, self.state(rows)], -1)

    def camera_mask(self, cameras) -> Tensor:
        """Return f32 [D]: 1 for state and for pixels of ``cameras``, 0 for other pixels."""
        for name in cameras:
            if name not in self.cameras:
                raise UserError(
                    f"the pinned camera {name!r} is not among the model's cameras; {nearest(name, self.cameras)}; set "
                    f"world_model.pinned=[] or to fixed cameras of [{', '.join(self.cameras)}]"
                )
        shown = torch.tensor([float(name in cameras) for name in self.cameras])
        return torch.cat([shown.repeat_interleave(self.pixels // len(self.cameras)), torch.ones(self.state_dim)])

    def check(self, frames: Mapping[str, Tensor]) -> None:
        """Raise UserError unless ``frames`` has every camera at its size."""
        for name, size in self.cameras.items():
            if name not in frames:
                raise UserError(f"the world model needs camera {name!r}; {nearest(name, frames)}")
            if tuple(frames[name].shape[-3:-1]) != size:
                found = tuple(frames[name].shape[-3:-1])
                raise UserError(f"the world model was built for {name} frames of {size}, found {found}; render or resize to that size")
