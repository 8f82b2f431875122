"""Changes to pictures that do not change whether the goal holds, so that a judge of real frames also reads imagined ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

SHIFT = 1 / 16  # of the picture's side
BRIGHTNESS, CONTRAST = 0.08, 0.15
BLUR_SHARE = 0.5  # of the samples; imagined frames are soft
NOISE = 0.05  # largest standard deviation, pictures in [0, 1]


def augment(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Shift, relight, blur and add noise to ``pictures`` f32 [B, C, h, w] in [0, 1]; one draw per sample, shared by its channels."""
    return noise(blur(relight(shift(pictures, generator), generator), generator), generator)


def shift(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Move each sample by up to ``SHIFT`` of its side, repeating the edge."""
    b, _, h, w = pictures.shape
    reach = max(1, round(SHIFT * min(h, w)))
    moves = torch.randint(-reach, reach + 1, (2, b, 1), generator=generator, device=pictures.device)
    rows = (torch.arange(h, device=pictures.device) + moves[0]).clamp(0, h - 1)  # [B, h]
    columns = (torch.arange(w, device=pictures.device) + moves[1]).clamp(0, w - 1)  # [B, w]
    moved = pictures.gather(2, rows[:, None, :, None].expand_as(pictures))
    return moved.gather(3, columns[:, None, None, :].expand_as(pictures))


def relight(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Change brightness and contrast."""
    gain, offset = 2 * torch.rand((2, len(pictures), 1, 1, 1), generator=generator, device=pictures.device) - 1
    return pictures * (1 + CONTRAST * gain) + BRIGHTNESS * offset


def blur(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Mix half of the samples with their 3x3 mean, by a random share."""
    draw = torch.rand((len(pictures), 1, 1, 1), generator=generator, device=pictures.device)
    chosen = (draw[:, 0, 0, 0] < BLUR_SHARE).nonzero()[:, 0]
    sharp = pictures[chosen]
    soft = F.avg_pool2d(F.pad(sharp, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return pictures.index_copy(0, chosen, torch.lerp(sharp, soft, draw[chosen] / BLUR_SHARE))


def noise(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Add white noise of a random strength."""
    strength = NOISE * torch.rand((len(pictures), 1, 1, 1), generator=generator, device=pictures.device)
    return pictures + strength * torch.randn(pictures.shape, generator=generator, device=pictures.device)
