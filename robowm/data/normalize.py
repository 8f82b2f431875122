"""One normaliser for training and inference: per dimension, the data's range becomes [-1, 1], or their spread around the mean does.

x' = (x - middle) / scale, middle = (high + low) / 2, scale = (high - low) / 2. A dimension that hardly varies (range below ``RANGE_EPS``)
keeps scale 1: it maps to 0 at its mid-point, neither to NaN nor to thousands, and comes back exactly (as in Diffusion Policy's
LinearNormalizer, range_eps 1e-4).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from robowm.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

RANGE_EPS = 1e-4  # metres or radians over a whole data set: nothing a robot does on purpose


@dataclass(frozen=True, eq=False)
class Normalizer:
    """Maps arrays [..., D] to [-1, 1] and back, numpy or torch (then on the tensor's device and in its dtype)."""

    low: np.ndarray  # f64 [D], what becomes -1: the smallest value seen, or mean - standard deviation
    high: np.ndarray  # f64 [D], what becomes 1

    @classmethod
    def fit(cls, arrays: np.ndarray | Sequence[np.ndarray], names: Sequence[str] | None = None) -> Normalizer:
        """Return the normaliser of one array [..., D] or several. Warns about dimensions that hardly vary, by ``names`` if given.

        Raises UserError if there is no data or if it holds NaN or infinity.
        """
        rows = _rows(arrays)
        return cls._checked(rows.min(0), rows.max(0), names)

    @classmethod
    def fit_standard(cls, arrays: np.ndarray | Sequence[np.ndarray], names: Sequence[str] | None = None) -> Normalizer:
        """Return the normaliser to mean 0 and standard deviation 1; otherwise as ``fit``."""
        rows = _rows(arrays).astype(np.float64)
        mean, deviation = rows.mean(0), rows.std(0)
        return cls._checked(mean - deviation, mean + deviation, names)

    @classmethod
    def _checked(cls, low: np.ndarray, high: np.ndarray, names: Sequence[str] | None) -> Normalizer:
        low, high = low.astype(np.float64), high.astype(np.float64)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            dimension = int(np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))[0])
            raise UserError(f"cannot fit a normaliser: {_name(names, dimension)} holds NaN or infinity; repair or drop those episodes")
        normalizer = cls(low, high)
        if constant := normalizer.constant_dimensions():
            listed = ", ".join(f"{_name(names, d)} = {low[d]:.6g}" for d in constant)
            warnings.warn(f"nearly constant, mapped to 0: {listed}", stacklevel=3)
        return normalizer

    def constant_dimensions(self) -> list[int]:
        """Return the dimensions that hardly vary."""
        return np.flatnonzero(self.high - self.low < RANGE_EPS).tolist()

    def normalize(self, x: np.ndarray | Tensor) -> np.ndarray | Tensor:
        """Map x [..., D] from the data's units to [-1, 1]."""
        middle, scale = self._coefficients(x)
        return (x - middle) / scale

    def unnormalize(self, x: np.ndarray | Tensor) -> np.ndarray | Tensor:
        """Map x [..., D] from [-1, 1] to the data's units."""
        middle, scale = self._coefficients(x)
        return x * scale + middle

    def safe_stats(self) -> dict[str, np.ndarray]:
        """Return f32 {min, max, mean, std}: a min-max and a mean-std processor (lerobot's) build this very map without dividing by zero."""
        middle, scale = self._middle_scale
        stats = {"min": middle - scale, "max": middle + scale, "mean": middle, "std": scale}
        return {name: value.astype(np.float32) for name, value in stats.items()}

    def to_json(self) -> dict[str, list[float]]:
        return {"low": self.low.tolist(), "high": self.high.tolist()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Normalizer:
        return cls(np.asarray(record["low"], np.float64), np.asarray(record["high"], np.float64))

    @cached_property
    def _middle_scale(self) -> tuple[np.ndarray, np.ndarray]:
        spread = self.high - self.low
        return (self.high + self.low) / 2, np.where(spread < RANGE_EPS, 1.0, spread / 2)

    @cached_property
    def _tensors(self) -> dict[tuple, tuple]:
        return {}  # {(device, dtype): (middle, scale)}

    def _coefficients(self, x):
        if x.shape[-1] != len(self.low):
            raise UserError(f"the normaliser was fitted on {len(self.low)} dimensions and met an array of shape {tuple(x.shape)}")
        if isinstance(x, np.ndarray):
            return tuple(value.astype(x.dtype) for value in self._middle_scale)
        key = (x.device, x.dtype)
        if key not in self._tensors:
            import torch

            self._tensors[key] = tuple(torch.as_tensor(value, dtype=x.dtype, device=x.device) for value in self._middle_scale)
        return self._tensors[key]


def _rows(arrays: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
    arrays = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
    flat = [np.asarray(array).reshape(-1, np.asarray(array).shape[-1]) for array in arrays if np.asarray(array).size]
    if not flat:
        raise UserError("cannot fit a normaliser: there are no rows; check the store and its filters")
    return np.concatenate(flat)


def _name(names: Sequence[str] | None, dimension: int) -> str:
    return names[dimension] if names is not None else f"dimension {dimension}"
