"""How close predicted frames are to true ones: PSNR, SSIM, LPIPS, and PSNR where a mask is. One implementation for rewards and reports.

Every function takes two tensors of equal shape [..., h, w, 3], RGB, and returns f32 [...], one number per picture, so nothing is averaged
over frames, cameras or episodes here. uint8 is meant; floating tensors in 0..255 are accepted as they are and keep their gradients.
Pictures go through in slices of ``SLICE`` so that memory does not grow with their number.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from robowm.errors import UserError
from robowm.metrics.lpips_weights import load_lpips_weights
from robowm.types import MASK_CHANNELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PEAK = 255.0
ROUNDING = 1 / 12  # variance of rounding to whole grey levels: errors below it cannot be seen in uint8 frames
WINDOW, WINDOW_SIGMA = 11, 1.5  # Wang et al. 2004, section III.C
K1, K2 = 0.01, 0.03  # Wang et al. 2004, section III.B
SLICE = 256  # pictures at a time
FOREGROUND = {"psnr_object": MASK_CHANNELS["object"], "psnr_gripper": MASK_CHANNELS["gripper"]}  # channel of the mask each looks at
LPIPS_SMALLEST = 31  # pixels; below it AlexNet's second pooling has nothing left to pool


def psnr(a: Tensor, b: Tensor) -> Tensor:
    """Return the peak signal-to-noise ratio in dB, [...]; higher is closer.

    The mean squared error is floored at that of rounding to whole grey levels (1/12), so equal pictures give 58.9 dB, not infinity, and a
    mean over frames stays a number.
    """
    _check(a, b)
    return _sliced(_psnr, a, b)


def masked_squared_error(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """Return the mean squared error over the pixels of ``mask`` bool [..., h, w], in grey levels squared, [...]; nan where it is empty."""
    _check(a, b)
    if mask.shape != a.shape[:-1] or mask.dtype != torch.bool:
        raise UserError(f"a mask of pictures {tuple(a.shape)} is bool {tuple(a.shape[:-1])}, found {mask.dtype} {tuple(mask.shape)}")
    return _sliced(_masked_error, a, b, mask[..., None])


def masked_psnr(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """Return the PSNR in dB, [...], of the pixels of ``mask`` bool [..., h, w] alone; nan where it is empty.

    Such pictures do not show what is looked at; leave them out of means.
    """
    return _decibels(masked_squared_error(a, b, mask))


def foreground_psnr(name: str, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """Return the metric ``name`` of ``FOREGROUND``, [...], where ``mask`` is a recorded mask uint8 [..., h, w, 3] of the true picture."""
    return masked_psnr(a, b, mask[..., FOREGROUND[name]] > 0)


def ssim(a: Tensor, b: Tensor) -> Tensor:
    """Return structural similarity (Wang et al. 2004, equation 13), [...]; 1 is equal.

    11x11 Gaussian window of sigma 1.5, no padding, per colour channel, mean over positions and channels: the published settings, which
    scikit-image calls ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False``.
    """
    _check(a, b, smallest=WINDOW)
    return _sliced(_ssim, a, b)


def lpips(a: Tensor, b: Tensor) -> Tensor:
    """Return the learned perceptual distance (Zhang et al. 2018, equation 1), [...]; 0 is equal, lower is closer.

    AlexNet backbone, version 0.1 heads. Numbers of other backbones are not comparable.
    """
    _check(a, b, smallest=LPIPS_SMALLEST)
    return _sliced(_lpips, a, b)


def fidelity(a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """Return all three, {"psnr" | "ssim" | "lpips": f32 [...]}; LPIPS is left out of pictures below 31 pixels, where it does not exist."""
    found = {"psnr": psnr(a, b), "ssim": ssim(a, b)}
    return found if min(a.shape[-3:-1]) < LPIPS_SMALLEST else {**found, "lpips": lpips(a, b)}


def _check(a: Tensor, b: Tensor, smallest: int = 1) -> None:
    if a.shape != b.shape or a.dim() < 3 or a.shape[-1] != 3:
        raise UserError(f"expected two tensors of one shape [..., h, w, 3], found {tuple(a.shape)} and {tuple(b.shape)}")
    if min(a.shape[-3:-1]) < smallest:
        raise UserError(f"this metric needs pictures of at least {smallest} pixels a side, found {a.shape[-3]}x{a.shape[-2]}")


def _sliced(metric: Callable[..., Tensor], a: Tensor, *others: Tensor) -> Tensor:
    """Apply ``metric`` (f32 [M, 3, h, w] each to [M]; a mask has one channel) to slices and restore the leading shape."""
    flat = [x.reshape(-1, *x.shape[-3:]) for x in (a, *others)]
    values = [metric(*(x[i : i + SLICE].movedim(-1, 1).float().contiguous() for x in flat)) for i in range(0, len(flat[0]), SLICE)]
    return torch.cat(values).reshape(a.shape[:-3]) if values else torch.zeros(a.shape[:-3], device=a.device)


def _psnr(a: Tensor, b: Tensor) -> Tensor:
    return _decibels((a - b).square().mean((1, 2, 3)))


def _masked_error(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    return ((a - b).square().mean(1, keepdim=True) * mask).sum((1, 2, 3)) / mask.sum((1, 2, 3))


def _decibels(error: Tensor) -> Tensor:
    return 10 * torch.log10(PEAK**2 / error.clamp_min(ROUNDING))


def _ssim(a: Tensor, b: Tensor) -> Tensor:
    def blur(x: Tensor) -> Tensor:
        taps = _window(x.device).to(x.dtype)
        maps = F.conv2d(x.flatten(0, 1)[:, None], taps.view(1, 1, -1, 1))
        return F.conv2d(maps, taps.view(1, 1, 1, -1)).view(*x.shape[:2], *_inner(x))

    c1, c2 = (K1 * PEAK) ** 2, (K2 * PEAK) ** 2
    a, b = a.double(), b.double()  # variances are differences of large numbers
    mean_a, mean_b = blur(a), blur(b)
    var_a, var_b = blur(a * a) - mean_a**2, blur(b * b) - mean_b**2
    cov = blur(a * b) - mean_a * mean_b
    maps = ((2 * mean_a * mean_b + c1) * (2 * cov + c2)) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    return maps.mean((1, 2, 3)).float()


def _inner(x: Tensor) -> tuple[int, int]:
    return x.shape[-2] - WINDOW + 1, x.shape[-1] - WINDOW + 1


@lru_cache(maxsize=4)
def _window(device: torch.device) -> Tensor:
    distance = torch.arange(WINDOW, dtype=torch.float64, device=device) - WINDOW // 2
    taps = torch.exp(-(distance**2) / (2 * WINDOW_SIGMA**2))
    return taps / taps.sum()


# (stride, padding) of AlexNet's convolutions; a 3x3 max-pooling of stride 2 stands before the second and the third
_ALEXNET = ((4, 2), (1, 2), (1, 1), (1, 1), (1, 1))
_POOLED = (1, 2)
_SHIFT = (-0.030, -0.088, -0.188)  # ImageNet statistics in the [-1, 1] range, as lpips has them
_SCALE = (0.458, 0.448, 0.450)


def _lpips(a: Tensor, b: Tensor) -> Tensor:
    weights = _lpips_weights(a.device)
    distance = torch.zeros(len(a), device=a.device)
    for i, (ours, theirs) in enumerate(zip(_alexnet(a, weights), _alexnet(b, weights), strict=True)):
        distance = distance + F.conv2d((ours - theirs).square(), weights[f"head{i}.weight"]).mean((1, 2, 3))
    return distance


def _alexnet(x: Tensor, weights: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """Yield the five feature maps of pictures f32 [M, 3, h, w], each place scaled to unit length."""
    shift, scale = (torch.tensor(values, device=x.device).view(1, 3, 1, 1) for values in (_SHIFT, _SCALE))
    x = ((x / (PEAK / 2) - 1) - shift) / scale
    for i, (stride, padding) in enumerate(_ALEXNET):
        if i in _POOLED:
            x = F.max_pool2d(x, 3, 2)
        kernel = weights[f"conv{i}.weight"]
        if x.shape[-2:] == (1, 1):  # small pictures: around a single place lies padding, only the kernel's middle matters
            kernel, padding = kernel[:, :, padding : padding + 1, padding : padding + 1], 0
        x = F.relu(F.conv2d(x, kernel, weights[f"conv{i}.bias"], stride, padding))
        yield x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)


@lru_cache(maxsize=4)
def _lpips_weights(device: torch.device) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in load_lpips_weights().items()}
