"""Blocks of the small U-Net: residual convolutions under feature-wise modulation, attention over positions, embeddings of noise levels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUP = 16  # channels per normalisation group


def norm(channels: int) -> nn.GroupNorm:
    """Return group normalisation with groups of 16 channels, or of all of them where there are fewer."""
    return nn.GroupNorm(max(channels // GROUP, 1), channels)


def zeroed(module: nn.Module) -> nn.Module:
    """Set all parameters to zero, so that a branch starts as a no-op."""
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


class LevelEmbedding(nn.Module):
    """Noise levels [B, R] in [0, 1] to features [B, R * width]: sines and cosines of each level (Vaswani et al. 2017)."""

    def __init__(self, width: int, highest: float = 32.0) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, math.log(highest), width // 2)), persistent=False)

    def forward(self, level: Tensor) -> Tensor:
        phase = level[..., None] * self.frequencies * math.pi
        return torch.cat([phase.sin(), phase.cos()], -1).flatten(1)


class ResBlock(nn.Module):
    """Two 3x3 convolutions; the conditioning vector scales and shifts between them (FiLM, Perez et al. 2018).

    [B, c, h, w] to [B, d, h, w].
    """

    def __init__(self, channels: int, out: int, condition: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(channels), nn.Conv2d(channels, out, 3, padding=1)
        self.modulate = nn.Linear(condition, 2 * out)
        self.norm2, self.conv2 = norm(out), zeroed(nn.Conv2d(out, out, 3, padding=1))
        self.skip = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.modulate(condition)[:, :, None, None].chunk(2, 1)
        y = self.conv1(F.silu(self.norm1(x)))
        y = self.conv2(F.silu(self.norm2(y) * (1 + scale) + shift))
        return self.skip(x) + y


class Attention(nn.Module):
    """Multi-head self-attention over all positions of a feature map, with a residual connection. [B, c, h, w] to the same."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = norm(channels), nn.Conv2d(channels, 3 * channels, 1), zeroed(nn.Conv2d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(batch, 3, self.heads, channels // self.heads, h * w).transpose(-1, -2).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(batch, channels, h, w)
        return x + self.out(y)
