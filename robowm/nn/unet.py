"""A small U-Net over feature maps, modulated by a conditioning vector (Ronneberger et al. 2015; the shape of DDPM's, Ho et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robowm.nn.blocks import Attention, ResBlock, norm, zeroed


class UNet(nn.Module):
    """Maps [B, inputs, h, w] and a condition [B, condition] to ([B, outputs, h, w], features of the lowest level [B, c, h', w']).

    ``patch`` folds patch x patch pixels into channels first (pixel-unshuffle), which saves most of the cost at full resolution. There is
    one level per entry of ``widths``; each further one halves the side. Attention sits at the lowest level alone. Starts as the zero map.
    """

    def __init__(self, inputs: int, outputs: int, condition: int, widths: Sequence[int], blocks: int, patch: int) -> None:
        super().__init__()
        self.patch, self.multiple = patch, patch * 2 ** (len(widths) - 1)
        self.enter = nn.Conv2d(inputs * patch**2, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        channels, skips = widths[0], []
        for width in widths:
            sizes = [channels] + [width] * (blocks - 1)
            self.down.append(nn.ModuleList(ResBlock(size, width, condition) for size in sizes))
            channels = width
            skips.append(width)
        self.middle = nn.ModuleList([ResBlock(channels, channels, condition), Attention(channels), ResBlock(channels, channels, condition)])
        for level, width in reversed(list(enumerate(widths))):
            sizes = [channels + skips[level]] + [width] * (blocks - 1)
            self.up.append(nn.ModuleList(ResBlock(size, width, condition) for size in sizes))
            channels = width
        self.leave = nn.Sequential(norm(channels), nn.SiLU(), zeroed(nn.Conv2d(channels, outputs * patch**2, 3, padding=1)))
        self.features = widths[-1]

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        x = self.enter(F.pixel_unshuffle(x, self.patch))
        skips = []
        for level, blocks in enumerate(self.down):
            x = F.avg_pool2d(x, 2) if level else x
            for block in blocks:
                x = block(x, condition)
            skips.append(x)
        first, attention, second = self.middle
        x = lowest = second(attention(first(x, condition)), condition)
        for level, blocks in enumerate(self.up):
            x = F.interpolate(x, scale_factor=2, mode="nearest") if level else x
            x = torch.cat([x, skips[-1 - level]], 1)
            for block in blocks:
                x = block(x, condition)
        return F.pixel_shuffle(self.leave(x), self.patch), lowest
