"""The only file that knows accelerate: device, mixed precision, several processes.

One process on a CPU, one GPU, or many ranks started by ``torchrun`` or ``accelerate launch`` run the same code.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from robowm.errors import UserError

Precision = Literal["auto", "fp32", "bf16"]


def pick_device(device: str = "auto") -> torch.device:
    """Resolve ``auto`` to a GPU where there is one, else the CPU; check that a named device exists."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise UserError(f"device={device!r} is no device; use auto, cpu, cuda or cuda:0") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device={device!r} asked for, but torch finds no GPU; use device=auto or device=cpu")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device={device!r} asked for, but torch finds {torch.cuda.device_count()} GPU(s), numbered from 0")
    return chosen


def pick_precision(precision: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """Resolve ``auto``: bf16 where the hardware multiplies it natively (emulated bf16 is several times slower than fp32)."""
    if precision == "auto":
        if device.type == "cuda":
            return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
        return "bf16" if torch.cpu.get_capabilities().get("avx512_bf16") else "fp32"
    if precision not in ("fp32", "bf16"):
        raise UserError(f"precision={precision!r} is unknown; use auto, fp32 or bf16")
    return precision


class LossModule(nn.Module):
    """Model and loss as one module, so that mixed precision and gradient averaging cover whatever the loss calls on the model."""

    def __init__(self, model: nn.Module, loss: Callable[..., tuple[Tensor, dict[str, Tensor]]]) -> None:
        super().__init__()
        self.model, self._loss = model, loss

    def forward(self, batch: Any, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return self._loss(self.model, batch, generator)


class Runtime:
    """Where and how accurately to compute, and which of how many processes this one is."""

    def __init__(self, device: str = "auto", precision: Precision = "auto") -> None:
        chosen = pick_device(device)
        self.precision = pick_precision(precision, chosen)
        if chosen.index is not None and "LOCAL_RANK" not in os.environ:
            torch.cuda.set_device(chosen)
        alone = "LOCAL_RANK" not in os.environ
        AcceleratorState._reset_state(reset_partial_state=alone)  # an earlier fit of this process may have chosen otherwise
        self._accelerator = Accelerator(cpu=chosen.type == "cpu", mixed_precision={"bf16": "bf16", "fp32": "no"}[self.precision])
        self.device: torch.device = chosen if alone and chosen.index is not None else self._accelerator.device
        self.rank: int = self._accelerator.process_index
        self.world_size: int = self._accelerator.num_processes
        self.is_main: bool = self._accelerator.is_main_process

    def prepare(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Wrap for mixed precision and, with several processes, gradient averaging."""
        return self._accelerator.prepare(module, optimizer, device_placement=[False, False])

    def backward(self, loss: Tensor) -> None:
        self._accelerator.backward(loss)

    def clip_gradients(self, module: nn.Module, largest: float) -> Tensor:
        """Scale gradients down to the global norm ``largest`` and return the norm before, a scalar."""
        return self._accelerator.clip_grad_norm_(module.parameters(), largest)

    def wait(self) -> None:
        """Return once every process has come here."""
        self._accelerator.wait_for_everyone()


def to_device(batch: Any, device: torch.device) -> Any:
    """Return ``batch`` with every tensor in it (through dicts, sequences and dataclasses) on ``device``."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        moved = {f.name: to_device(getattr(batch, f.name), device) for f in dataclasses.fields(batch) if f.init}
        return dataclasses.replace(batch, **moved)
    if type(batch) in (list, tuple) and any(not isinstance(item, str) for item in batch):
        return type(batch)(to_device(item, device) for item in batch)
    return batch


def peak_memory_mib(device: torch.device) -> float:
    """Return the most memory used so far: of the GPU where the device is one, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
