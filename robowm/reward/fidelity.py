"""Closeness to the true clip as a reward: LPIPS, SSIM and PSNR of every camera, and PSNR where object or gripper are, weighed.

PersistWorld (Bardhan et al., arXiv 2603.25685): R = -LPIPS + SSIM + PSNR / 32, each a mean over the clip's frames, cameras counting alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from robowm.errors import UserError, nearest
from robowm.metrics.fidelity import FOREGROUND, foreground_psnr, lpips, psnr, ssim
from robowm.types import MASK, Score

METRICS = {"lpips": lpips, "ssim": ssim, "psnr": psnr}
WEIGHTS = {"lpips": -1.0, "ssim": 1.0, "psnr": 1 / 32}  # of a unit of each; PSNR in dB


def check_metrics(names: Iterable[str]) -> None:
    """Raise UserError for the first of ``names`` that is no metric of a fidelity reward."""
    known = {**METRICS, **FOREGROUND}
    for name in names:
        if name not in known:
            raise UserError(f"a fidelity reward has no metric {name!r}; {nearest(name, known)}")


def fidelity_score(shown: Mapping[str, Tensor], true: Mapping[str, Tensor], weights: Mapping[str, float]) -> Score:
    """Score frames {camera: [B, T, h, w, 3]} against the true ones, per frame.

    ``weights`` {lpips | ssim | psnr | psnr_object | psnr_gripper: weight}; terms are named "lpips/wrist". A metric that is left out costs
    nothing. The last two need recorded masks among ``true`` ("wrist_mask"); their terms are nan in frames without object or gripper, and
    in the total the mean over the cameras that do show it, 0 where none does.
    """
    check_metrics(weights)
    if not weights or not shown:
        raise UserError(f"a fidelity reward needs a metric and a camera, found metrics {sorted(weights)} and cameras {sorted(shown)}")
    whole, parts = ([name for name in weights if name in kind] for kind in (METRICS, FOREGROUND))
    terms = {f"{name}/{camera}": METRICS[name](frames, true[camera]) for camera, frames in shown.items() for name in whole}
    for camera, frames in shown.items():
        terms |= {f"{name}/{camera}": foreground_psnr(name, frames, true[camera], true[camera + MASK]) for name in parts}
    total = sum(weights[name] * terms[f"{name}/{camera}"] for camera in shown for name in whole) / len(shown)
    total = total + sum(weights[name] * _where_seen([terms[f"{name}/{camera}"] for camera in shown]) for name in parts)
    return Score(total, terms)


def _where_seen(terms: list[Tensor]) -> Tensor:
    """Return the mean of V terms [B, T] over the cameras where it is a number, 0 where there is none."""
    return torch.stack(terms).nanmean(0).nan_to_num(0.0)
