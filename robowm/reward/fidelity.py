"""Closeness to the true clip as a reward: LPIPS, SSIM and PSNR of every camera, weighed.

PersistWorld (Bardhan et al., arXiv 2603.25685): R = -LPIPS + SSIM + PSNR / 32, each a mean over the clip's frames, cameras counting alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from robowm.errors import UserError, nearest
from robowm.metrics.fidelity import lpips, psnr, ssim
from robowm.types import Score

METRICS = {"lpips": lpips, "ssim": ssim, "psnr": psnr}
WEIGHTS = {"lpips": -1.0, "ssim": 1.0, "psnr": 1 / 32}  # of a unit of each; PSNR in dB


def fidelity_score(shown: Mapping[str, Tensor], true: Mapping[str, Tensor], weights: Mapping[str, float]) -> Score:
    """Score frames {camera: [B, T, h, w, 3]} against the true ones, per frame.

    ``weights`` {lpips | ssim | psnr: weight}; terms are named "lpips/wrist". A metric that is left out costs nothing.
    """
    for name in weights:
        if name not in METRICS:
            raise UserError(f"a fidelity reward has no metric {name!r}; {nearest(name, METRICS)}")
    if not weights or not shown:
        raise UserError(f"a fidelity reward needs a metric and a camera, found metrics {sorted(weights)} and cameras {sorted(shown)}")
    terms = {f"{name}/{camera}": METRICS[name](frames, true[camera]) for camera, frames in shown.items() for name in weights}
    total = sum(weights[name] * terms[f"{name}/{camera}"] for camera in shown for name in weights) / len(shown)
    return Score(total, terms)
