"""A learner is an iterator of batches plus a loss function; ``fit`` trains any of them, resumes exactly and returns the averaged weights.

Every random number of a step comes from (seed, step, rank), and a batch is a function of its step, so a checkpoint needs no generator
state: 50 steps, a kill, and 50 more end in the same bits as 100.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from robowm.errors import UserError
from robowm.progress import Progress
from robowm.train.checkpoint import Checkpoint, config_differences, load_newest, save_checkpoint
from robowm.train.distributed import LossModule, Precision, Runtime, peak_memory_mib, to_device
from robowm.train.log import LOG, JsonlLog, SafeTracker, Tracker
from robowm.train.optim import Ema, OptimConfig, lr_at, make_optimizer

Loss = Callable[[nn.Module, Any, torch.Generator], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class Learner:
    """What to train and on what.

    ``batch(step)`` must be a pure function of ``step``. ``loss(model, batch, generator)`` returns the scalar to minimise and the raw terms
    behind it for the log; it draws its noise from ``generator`` (on the model's device) or from torch's global one, both seeded per step.
    Under bf16 it runs in autocast, so it reduces in float32 (``.float()`` before means and squares).
    """

    model: nn.Module
    batch: Callable[[int], Any]
    loss: Loss


class Fitting(TypedDict, total=False):
    """How ``fit`` goes about it, whatever it trains: what every training passes on to it."""

    device: str  # auto, cpu, cuda, ...
    precision: Precision  # auto, fp32, bf16
    log_every: int  # updates
    save_every: int  # updates
    tracker: Tracker | None


def derive_seed(*words: int) -> int:
    """Return 63 bits that are a function of ``words`` and unrelated for different ones."""
    return int(np.random.SeedSequence([int(word) for word in words]).generate_state(1, np.uint64)[0] >> 1)


class Trainee:
    """The state that training changes: weights, optimiser, moving average. Algorithms that alternate networks hold several."""

    def __init__(self, model: nn.Module, loss: Loss, *, optim: OptimConfig, steps: int, seed: int, runtime: Runtime) -> None:
        self.model = model.to(runtime.device).train()
        self._optim, self._steps, self._seed, self._runtime = optim, steps, seed, runtime
        self._names = [name for name, p in model.named_parameters() if p.requires_grad]
        self._raw_optimizer = make_optimizer(self.model, optim)
        self.ema = Ema(self.model, optim)
        self._wrapped, self._optimizer = runtime.prepare(LossModule(self.model, loss), self._raw_optimizer)

    def train_step(self, batch: Any, step: int) -> dict[str, Tensor]:
        """Do update ``step`` (0-based) and return the raw terms with ``loss``, ``grad_norm`` and ``lr``, each a scalar."""
        seed = derive_seed(self._seed, step, self._runtime.rank)
        torch.manual_seed(seed)
        generator = torch.Generator(self._runtime.device).manual_seed(seed)
        lr = lr_at(step, self._steps, self._optim)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        loss, terms = self._wrapped(to_device(batch, self._runtime.device), generator)
        self._refuse_nan("loss", loss, step, terms)
        self._optimizer.zero_grad(set_to_none=True)
        self._runtime.backward(loss)
        norm = self._runtime.clip_gradients(self._wrapped, self._optim.grad_clip)
        self._refuse_nan("gradient", norm, step, terms)
        self._optimizer.step()
        self.ema.update(self.model)
        return {"loss": loss.detach(), **{k: v.detach() for k, v in terms.items()}, "grad_norm": norm.detach(), "lr": torch.tensor(lr)}

    def averaged(self) -> nn.Module:
        """Return a copy of the model with the averaged weights, in evaluation mode."""
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.ema.weights)
        return model.eval()

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor a resume needs, under ``model.``, ``ema.`` and ``optim.``; NaN in the weights is refused."""
        for name, value in self.model.state_dict().items():
            if value.is_floating_point() and not torch.isfinite(value).all():
                raise UserError(f"weight {name} is not finite; nothing was saved. Lower optim.lr and run again, it resumes")
        state = self._raw_optimizer.state_dict()["state"]
        return {
            **{f"model.{name}": value for name, value in self.model.state_dict().items()},
            **{f"ema.{name}": value for name, value in self.ema.weights.items()},
            **{f"optim.{self._names[i]}.{key}": value for i, entry in state.items() for key, value in entry.items()},
        }

    def load(self, tensors: Mapping[str, Tensor], ema_updates: int) -> None:
        """Restore what ``tensors()`` gave."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        self.model.load_state_dict(under("model."))
        self.ema.load(under("ema."), ema_updates)
        parameters = dict(self.model.named_parameters())
        state = {}
        for i, name in enumerate(self._names):
            entry = under(f"optim.{name}.")
            like = parameters[name]
            state[i] = {k: torch.empty_like(like).copy_(v) if v.shape == like.shape and k != "step" else v for k, v in entry.items()}
        groups = self._raw_optimizer.state_dict()["param_groups"]
        self._raw_optimizer.load_state_dict({"state": {i: entry for i, entry in state.items() if entry}, "param_groups": groups})

    def _refuse_nan(self, what: str, value: Tensor, step: int, terms: Mapping[str, Tensor]) -> None:
        if not torch.isfinite(value).all():
            found = ", ".join(f"{name}={float(term):.4g}" for name, term in terms.items())
            raise UserError(
                f"{what} is {float(value)} at step {step} ({found}); the last checkpoint is whole. Lower optim.lr or check the data"
            )


def fit(
    learner: Learner,
    *,
    steps: int,
    optim: OptimConfig,
    seed: int,
    output_dir: Path | str,
    device: str = "auto",
    precision: Precision = "auto",
    log_every: int = 50,
    save_every: int = 500,
    config: Mapping[str, Any] | None = None,
    tracker: Tracker | None = None,
    label: str = "train",
) -> nn.Module:
    """Train for ``steps`` updates and return the averaged model in evaluation mode, on its device.

    Continues from ``output_dir/checkpoints/last`` where there is one; ``config`` (JSON-like: whatever else shapes the run, such as the
    data's fingerprints) is kept with it, and a resume that differs in it or in steps, optim, seed or precision is refused with the
    differing keys. With several processes, rank r of W takes batch ``step * W + r``. Writes ``output_dir/log.jsonl``.
    """
    output_dir = Path(output_dir)
    runtime = Runtime(device, precision)
    shape = {"steps": steps, "seed": seed, "optim": asdict(optim), "precision": runtime.precision, "processes": runtime.world_size}
    shape = {**shape, **(config or {})}
    trainee = Trainee(learner.model, learner.loss, optim=optim, steps=steps, seed=seed, runtime=runtime)
    folder = output_dir / "checkpoints"
    first = _resume(trainee, load_newest(folder), shape, folder)
    if first >= steps:
        return trainee.averaged()
    runtime.wait()
    record = _Record(output_dir, first, steps, label, shape, tracker, runtime)
    batches = _batches(learner.batch, range(first, steps), runtime)
    try:
        for step, batch in zip(range(first, steps), batches, strict=True):
            record.add(step, trainee.train_step(batch, step))
            done = step + 1
            if done % log_every == 0 or done == steps:
                record.write(done)
            if (done % save_every == 0 or done == steps) and runtime.is_main:
                save_checkpoint(folder, done, trainee.tensors(), {"ema_updates": trainee.ema.updates, "config": shape})
    except torch.cuda.OutOfMemoryError as error:
        raise UserError(f"the GPU is out of memory ({str(error).splitlines()[0]}); lower batch_size, or the model's size") from error
    finally:
        batches.close()
        record.close()
    runtime.wait()
    return trainee.averaged()


def _resume(trainee: Trainee, found: Checkpoint | None, shape: Mapping[str, Any], folder: Path) -> int:
    """Load ``found`` and return the step to go on from."""
    if found is None:
        return 0
    if differing := config_differences(found.facts["config"], shape):
        raise UserError(f"{folder} belongs to a run with other settings ({'; '.join(differing)}); choose another output_dir or delete it")
    trainee.load(found.tensors, found.facts["ema_updates"])
    return found.step


def _batches(batch: Callable[[int], Any], steps: range, runtime: Runtime) -> Iterator[Any]:
    """Yield this rank's batch of each step; beside a GPU, the next one is read while the current one trains."""
    own = [step * runtime.world_size + runtime.rank for step in steps]
    if runtime.device.type == "cpu":
        yield from (batch(index) for index in own)
        return
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(batch, own[0])
        for following in own[1:]:
            current, ahead = ahead, reader.submit(batch, following)
            yield current.result()
        yield ahead.result()


class _Record:
    """Means of the terms since the last line, speed and memory; to the file, the tracker and the progress bar, from the main process.

    A term that some steps lack is averaged over the others.
    """

    def __init__(self, folder: Path, first: int, steps: int, label: str, config: Mapping[str, Any], tracker, runtime: Runtime) -> None:
        self._runtime, self._terms, self._count, self._clock = runtime, {}, 0, time.perf_counter()
        self._log = JsonlLog(folder / LOG, first) if runtime.is_main else None
        self._tracker = SafeTracker(tracker if runtime.is_main else None)
        self._tracker.start(folder, config)
        self._progress = Progress(folder, steps, label, done=first) if runtime.is_main else None

    def add(self, step: int, terms: Mapping[str, Tensor]) -> None:
        for name, value in terms.items():
            total, count = self._terms.get(name, (0.0, 0))
            self._terms[name] = total + value.double(), count + 1
        self._count += 1
        if self._progress is not None:
            self._progress.advance()

    def write(self, done: int) -> None:
        if self._log is None:
            return
        now = time.perf_counter()
        values = {name: float(total) / count for name, (total, count) in self._terms.items()}
        values |= {"steps_per_s": self._count / (now - self._clock), "memory_mib": peak_memory_mib(self._runtime.device)}
        self._log.write({"step": done, **values})
        self._tracker.log(values, done)
        self._terms, self._count, self._clock = {}, 0, now

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._progress.close()
        self._tracker.finish()
