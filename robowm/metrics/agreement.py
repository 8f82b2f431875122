"""Does a model rank policies as reality does? Pure numpy. ``imagined`` and ``real`` are success rates f64 [N] of the same N policies."""

from __future__ import annotations

import numpy as np

from robowm.errors import UserError


def pearson(imagined: np.ndarray, real: np.ndarray) -> float:
    """Return the linear correlation, nan where one side does not vary."""
    x, y = _centred(imagined, real)
    scale = np.sqrt((x**2).sum() * (y**2).sum())
    return float((x * y).sum() / scale) if scale > 0 else float("nan")


def mean_maximum_rank_violation(imagined: np.ndarray, real: np.ndarray) -> float:
    """Return MMRV (SIMPLER, arXiv 2405.05941): mean over i of max over j of |R_i - R_j| where the two rank i, j differently; 0 is best."""
    _centred(imagined, real)
    s, r = np.asarray(imagined, float), np.asarray(real, float)
    violated = (s[:, None] < s[None]) != (r[:, None] < r[None])
    return float((np.abs(r[:, None] - r[None]) * violated).max(1).mean())


def _centred(imagined: np.ndarray, real: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(imagined, float), np.asarray(real, float)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise UserError(f"agreement needs the rates of the same policies, at least two; found shapes {x.shape} and {y.shape}")
    return x - x.mean(), y - y.mean()
