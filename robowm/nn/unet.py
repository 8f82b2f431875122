"""A small U-Net that predicts a few frames of several cameras at once, sized for a CPU core.

All rows and views are stacked on channels after pixel-unshuffling, so one pass at reduced resolution sees everything and views inform each
other. Actions, proprioception and noise levels form one conditioning vector that modulates every block, and are also drawn onto the
coarsest feature map, because absolute targets say where in the picture things will be.

Each predicted pixel is a mixture of newly painted colour, the last context frame and the first context frame, with predicted weights
(compositing as in SAVP, Lee et al. 2018): what stands still is copied, not repainted, so it stays sharp over long rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robowm.errors import UserError
from robowm.nn.blocks import Attention, LevelEmbedding, ResBlock, norm
from robowm.nn.shape import VideoShape
from robowm.nn.state import StatePath

LEVEL_WIDTH = 16  # features per noise level
COLOURS, SOURCES = 3, 3  # outputs per pixel: colour, and weights of new colour, last frame, first frame


class VideoUNet(nn.Module):
    """See nn/shape.py for inputs and outputs.

    Args:
        shape: the data's sizes.
        channels: of each resolution, finest first; each resolution halves the side.
        patch: pixel-unshuffle factor in front; the finest feature map is image / patch.
        depth: residual blocks per resolution and direction.
        condition: width of the conditioning vector.
        attention: whether positions of the coarsest map attend to each other.
    """

    def __init__(
        self,
        *,
        shape: VideoShape,
        channels: Sequence[int] = (64, 128, 192),
        patch: int = 2,
        depth: int = 1,
        condition: int = 256,
        attention: bool = False,
    ) -> None:
        super().__init__()
        if not channels or min(channels) < 1:
            raise UserError(f"world_model.network.channels={list(channels)}; name at least one width of 1 or more, finest resolution first")
        factor = patch * 2 ** (len(channels) - 1)
        if shape.height % factor or shape.width % factor:
            raise UserError(f"frames of {shape.height}x{shape.width} do not divide by {factor} (patch and {len(channels)} resolutions)")
        self.shape, self.patch = shape, patch
        channels = list(channels)
        coarse = (shape.height // factor, shape.width // factor)
        stacked = (shape.context + shape.frames) * shape.views * 3 * patch**2
        painted = shape.frames * shape.views * (COLOURS + SOURCES) * patch**2
        self.state = StatePath(shape, channels[-1], coarse, condition)
        self.level = LevelEmbedding(LEVEL_WIDTH)
        self.condition = nn.Sequential(
            nn.Linear((shape.context + shape.frames) * LEVEL_WIDTH + self.state.condition_dim, condition),
            nn.SiLU(),
            nn.Linear(condition, condition),
            nn.SiLU(),
        )
        self.stem = nn.Conv2d(stacked, channels[0], 1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        for c, following in pairwise(channels):
            self.down.append(nn.ModuleList(ResBlock(c, c, condition) for _ in range(depth)))
            self.shrink.append(nn.Conv2d(c, following, 2, stride=2))
        self.draw = nn.Linear(condition, channels[-1] * coarse[0] * coarse[1])
        self.middle = ResBlock(channels[-1], channels[-1], condition)
        self.attention = Attention(channels[-1]) if attention else nn.Identity()
        self.grow, self.up = nn.ModuleList(), nn.ModuleList()
        for coarser, c in pairwise(reversed(channels)):
            self.grow.append(nn.Conv2d(coarser, 4 * c, 1))
            self.up.append(nn.ModuleList(ResBlock(2 * c if i == 0 else c, c, condition) for i in range(depth)))
        self.out_norm, self.out = norm(channels[0]), nn.Conv2d(channels[0], painted, 1)
        self.coarse = coarse

    def forward(self, video: Tensor, level: Tensor, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See nn/shape.py."""
        expected, condition = self.state.expect(state, action)
        condition = self.condition(torch.cat([self.level(level), condition], 1))
        x = F.pixel_unshuffle(video.flatten(1, 3), self.patch).contiguous(memory_format=torch.channels_last)
        x, skips = self.stem(x), []
        for blocks, shrink in zip(self.down, self.shrink, strict=True):
            for block in blocks:
                x = block(x, condition)
            skips.append(x)
            x = shrink(x)
        x = x + self.draw(condition).unflatten(1, (-1, *self.coarse))
        x = self.attention(self.middle(x, condition))
        state = expected + self.state.correct(x, condition)
        for blocks, grow in zip(self.up, self.grow, strict=True):
            x = torch.cat([F.pixel_shuffle(grow(x), 2), skips.pop()], 1)
            for block in blocks:
                x = block(x, condition)
        painted = F.pixel_shuffle(self.out(F.silu(self.out_norm(x))), self.patch)
        painted = painted.unflatten(1, (self.shape.frames, self.shape.views, COLOURS + SOURCES)).float()
        return composite(painted, video[:, self.shape.context - 1], video[:, 0]), state


def composite(painted: Tensor, last: Tensor, first: Tensor) -> Tensor:
    """Mix new colour with the last and the first context frame: [B, F, V, 6, h, w] and twice [B, V, 3, h, w] to [B, F, V, 3, h, w]."""
    weight = painted[:, :, :, COLOURS:].softmax(3)
    new, kept, back = weight.split(1, 3)
    return new * painted[:, :, :, :COLOURS] + kept * last[:, None] + back * first[:, None]
