"""Convolutions that read a few frames of one camera: halving the side until 4 x 4 cells are left."""

from __future__ import annotations

import math

from torch import nn

CELLS = 16  # of the features, 4 x 4


def trunk(channels: int, width: int, side: int) -> nn.Sequential:
    """Map f32 [B, channels, h, w] with the smaller side ``side`` to features f32 [B, 2 width, 4, 4]; ``width`` is a multiple of 8."""
    halvings = max(1, round(math.log2(side / 4)))
    layers: list[nn.Module] = []
    for i in range(halvings):
        out = width if i < halvings - 1 else 2 * width
        layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.GroupNorm(8, out), nn.SiLU()]
        channels = out
    return nn.Sequential(*layers, nn.Conv2d(channels, channels, 3, padding=1), nn.SiLU(), nn.AdaptiveAvgPool2d(4))
