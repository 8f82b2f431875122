"""A finished network's weights as one safetensors file beside its artefact record."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from robowm.errors import UserError

WEIGHTS = "model.safetensors"


def save_weights(net: nn.Module, folder: Path) -> None:
    """Write the parameters and persistent buffers of ``net`` into ``folder``."""
    path = folder / WEIGHTS
    try:
        save_file({name: value.detach().cpu().contiguous() for name, value in net.state_dict().items()}, path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {path}: {error}; free some space and run again, it resumes") from error


def load_weights(net: nn.Module, folder: Path, what: str) -> None:
    """Read them into ``net``, which must have the same names and shapes; ``what`` says in an error what to train again."""
    path = folder / WEIGHTS
    try:
        net.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is missing or damaged ({reason}); delete {folder} and train {what} again") from error
