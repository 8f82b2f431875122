"""A convolutional image encoder that a CPU can afford: 32 to 96 pixels, all cameras in one batched pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

PATCH = 4  # side of the patches that the first layer embeds
SMALLEST_MAP = 4  # convolutions halve the map down to this side, whose places stay apart in the head


class ImageEncoder(nn.Module):
    """Maps the last K pictures of V cameras [B, K, V, 3, h, w] to features [B, V * features].

    A camera's K pictures enter as channels of one: motion is visible to the first layer and the convolutions run once, not K times. They
    are shared by the cameras, the linear head behind them is each camera's own. GroupNorm, since a moving average of weights and BatchNorm
    do not mix (Diffusion Policy, section 3.2). The head sees every place of the last map, so positions are kept.
    """

    def __init__(self, rows: int, cameras: int, size: tuple[int, int], width: int, features: int) -> None:
        super().__init__()
        if min(size) < PATCH * SMALLEST_MAP:
            raise ValueError(f"pictures of {size[0]} x {size[1]} pixels are too small, the encoder needs {PATCH * SMALLEST_MAP}")
        layers = [nn.Conv2d(3 * rows, width, PATCH, PATCH), *_norm_act(width), nn.Conv2d(width, width, 3, 1, 1), *_norm_act(width)]
        side, channels = (size[0] // PATCH, size[1] // PATCH), width
        while min(side) > SMALLEST_MAP:
            layers += [nn.Conv2d(channels, 2 * width, 3, 2, 1), *_norm_act(2 * width)]
            side, channels = ((side[0] + 1) // 2, (side[1] + 1) // 2), 2 * width
        self.convolutions = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        flat = channels * side[0] * side[1]
        self.heads = nn.ModuleList([nn.Sequential(nn.Linear(flat, features), nn.LayerNorm(features), nn.SiLU()) for _ in range(cameras)])

    def forward(self, images: Tensor) -> Tensor:
        b, _, v = images.shape[:3]
        stacked = images.transpose(1, 2).flatten(2, 3).flatten(0, 1)  # [B * V, 3 K, h, w]
        maps = self.convolutions(stacked.contiguous(memory_format=torch.channels_last)).reshape(b, v, -1)
        return torch.cat([head(maps[:, i]) for i, head in enumerate(self.heads)], dim=-1)


def random_shift(images: Tensor, share: float) -> Tensor:
    """Move pictures [B, K, V, 3, h, w] by up to ``share`` of their smaller side, repeating the edge; torch's global generator draws.

    One draw per clip and camera: all K rows of a clip move alike, as if the camera stood a little elsewhere.
    """
    b, _, v, _, h, w = images.shape
    reach = round(share * min(h, w))
    if reach == 0:
        return images
    moves = torch.randint(-reach, reach + 1, (2, b, 1, v, 1, 1, 1), device=images.device)
    rows = (torch.arange(h, device=images.device)[:, None] + moves[0]).clamp(0, h - 1)  # [B, 1, V, 1, h, 1]
    columns = (torch.arange(w, device=images.device) + moves[1]).clamp(0, w - 1)  # [B, 1, V, 1, 1, w]
    return images.gather(4, rows.expand_as(images)).gather(5, columns.expand_as(images))


def _norm_act(channels: int) -> list[nn.Module]:
    return [nn.GroupNorm(max(channels // 8, 1), channels), nn.SiLU()]
