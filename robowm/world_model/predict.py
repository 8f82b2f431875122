"""A trained world model behind ``robowm.protocols.WorldModel``: numpy in, numpy out, constant cost and memory per chunk.

Every inference runs at one padded width, and noise comes from each episode's own generator, so an episode's pictures do not depend on
which others are predicted beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robowm.artefacts import fingerprint_files, fingerprint_json, read_artefact, write_artefact
from robowm.data.spec import check_tasks
from robowm.diffusion.sample import sample
from robowm.errors import UserError
from robowm.train.weights import WEIGHTS, load_weights, save_weights
from robowm.types import Obs
from robowm.world_model.model import Context, WorldModelNet, rebuild

KIND = "world_model"


@dataclass(frozen=True)
class RollMemory:
    """What N episodes are conditioned on: the pinned first row and a ring of the last k, never more."""

    first: Tensor  # f32 [N, D]
    recent: Tensor  # f32 [N, k, D], newest last
    task: tuple[str, ...]  # N sentences

    def __len__(self) -> int:
        return len(self.first)

    def take(self, index: np.ndarray) -> RollMemory:
        """Return the memory of the episodes ``index`` int [M]."""
        where = torch.from_numpy(np.asarray(index, np.int64)).to(self.first.device)
        return RollMemory(self.first[where], self.recent[where], tuple(self.task[i] for i in index))

    def put(self, index: np.ndarray, other: RollMemory) -> RollMemory:
        """Return this memory with the episodes ``index`` replaced by those of ``other``; the rest stands still."""
        where = torch.from_numpy(np.asarray(index, np.int64)).to(self.first.device)
        return RollMemory(self.first.index_copy(0, where, other.first), self.recent.index_copy(0, where, other.recent), self.task)

    def push(self, rows: Tensor) -> RollMemory:
        """Return the memory after ``rows`` [N, r, D] more: the oldest leave."""
        return replace(self, recent=torch.cat([self.recent, rows], 1)[:, -self.recent.shape[1] :])


class LoadedWorldModel:
    """Satisfies ``robowm.protocols.WorldModel``.

    Args:
        name: fingerprint of the artefact, and how it is sampled where that is not its default.
        net: the model, in evaluation mode, on its device.
        sampling_steps: steps from noise to rows; None: the model's own setting.
        infer_width: episodes per forward pass; more are split, fewer are padded.
        temperature: scale of the first noise; below 1 samples stay closer to the mean.
        tasks: sentences that it knows; none: unknown.
    """

    def __init__(
        self,
        name: str,
        net: WorldModelNet,
        *,
        sampling_steps: int | None = None,
        infer_width: int = 32,
        temperature: float = 1.0,
        tasks: Sequence[str] = (),
    ) -> None:
        if infer_width < 1:
            raise UserError(f"infer_width={infer_width}; it must be at least 1")
        self.name, self.net, self.chunk = name, net, net.design.chunk
        self.cameras, self.tasks = dict(net.layout.cameras), tuple(tasks)
        self.width, self._temperature = infer_width, temperature
        self.steps = net.design.sampling_steps if sampling_steps is None else sampling_steps
        self._schedule = net.design.schedule(self.steps)
        self._device = net.pinned_mask.device

    def start(self, obs: Obs) -> RollMemory:
        """See WorldModel: remember the first row of ``obs`` and its last k (one row is repeated)."""
        check_tasks(obs.task, self.tasks, f"the world model {self.name}")
        if obs.state.shape[-1] != self.net.layout.state_dim:
            raise UserError(
                f"world model {self.name} was trained on {self.net.layout.state_dim} proprioception entries, found {obs.state.shape[-1]}"
            )
        frames = {camera: torch.from_numpy(np.ascontiguousarray(rows)) for camera, rows in obs.frames.items()}
        state = torch.from_numpy(np.ascontiguousarray(self.net.normalize_state.normalize(obs.state)))
        rows = self.net.layout.pack(frames, state).to(self._device)
        k = self.net.design.context
        padded = torch.cat([rows[:, :1].expand(-1, k, -1), rows], 1)
        return RollMemory(rows[:, 0], padded[:, -k:], obs.task)

    def predict(self, memory: RollMemory, actions: np.ndarray, rngs: Sequence[np.random.Generator]) -> tuple[Obs, RollMemory]:
        """See WorldModel. Fewer than ``chunk`` actions (an episode's end) are filled up with the last; rows past them are dropped."""
        actions = self.checked(actions, len(memory), self.chunk)
        keep = actions.shape[1]
        action = self.normalized(np.concatenate([actions, actions[:, -1:].repeat(self.chunk - keep, 1)], 1))
        rows = self.net.layout.rounded(self._sample(memory, action, self.noise(rngs, self.chunk))[:, :keep])
        return self.shown(rows, memory.task), memory.push(rows)

    def context(self, memory: RollMemory) -> Tensor:
        """Return the context rows [N, C, D] that the network sees."""
        return torch.cat([memory.first[:, None], memory.recent], 1) if self.net.design.pinned else memory.recent

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> Tensor:
        """Return the next noise [N, rows, D] of each episode, at the temperature asked for."""
        noise = np.stack([rng.standard_normal((rows, self.net.layout.dim), np.float32) for rng in rngs])
        return torch.from_numpy(noise).mul_(self._temperature).to(self._device)

    def normalized(self, actions: np.ndarray) -> Tensor:
        """Return ``actions`` f32 [N, H, A] as the network takes them."""
        return torch.from_numpy(self.net.normalize_action.normalize(actions)).to(self._device)

    def shown(self, rows: Tensor, task: tuple[str, ...]) -> Obs:
        """Return ``rows`` [N, H, D] as observations."""
        state = self.net.normalize_state.unnormalize(self.net.layout.state(rows)).cpu().numpy()
        return Obs({camera: values.cpu().numpy() for camera, values in self.net.layout.frames(rows).items()}, state, None, task)

    @torch.inference_mode()
    def _sample(self, memory: RollMemory, action: Tensor, noise: Tensor) -> Tensor:
        """Return rows [N, F, D], computed ``width`` episodes at a time."""
        found = []
        for count, (context, action_, noise_) in width_parts(self.width, self.context(memory), action, noise):
            clean = torch.zeros(context.shape[:2], device=self._device)
            conditioned = Context(context, clean, action_)
            found.append(sample(lambda x, level, c=conditioned: self.net.x0(x, level, c), noise_, self._schedule)[:count])
        return torch.cat(found)

    def checked(self, actions: np.ndarray, n: int, longest: int) -> np.ndarray:
        """Return ``actions`` as f32 [n, H, A] with 1 <= H <= ``longest``; anything else is a UserError."""
        actions = np.asarray(actions, np.float32)
        dim = len(self.net.normalize_action.low)
        if actions.ndim != 3 or actions.shape[::2] != (n, dim) or not 1 <= actions.shape[1] <= longest:
            raise UserError(f"world model {self.name}: actions have shape {actions.shape}, expected [{n}, 1..{longest}, {dim}]")
        if not np.isfinite(actions).all():
            raise UserError(f"world model {self.name}: actions hold NaN or infinity for episode {np.argwhere(~np.isfinite(actions))[0][0]}")
        return actions


def width_parts(width: int, *tensors: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
    """Cut ``tensors`` [N, ...] into parts of ``width`` episodes; yield how many of a part are real, and it with its last one repeated."""
    for i in range(0, len(tensors[0]), width):
        part = [x[i : i + width] for x in tensors]
        count = len(part[0])
        yield count, [torch.cat([x, x[-1:].expand(width - count, *x.shape[1:])]) for x in part]


def seal(
    net: WorldModelNet,
    folder: Path,
    facts: Mapping[str, Any],
    *,
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    fps: float,
    tasks: Sequence[str],
) -> None:
    """Write the weights of ``net`` into ``folder`` and make it a finished artefact; ``facts`` is what ``rebuild`` needs."""
    save_weights(net, folder)
    fingerprint = fingerprint_json([fingerprint_files([folder / WEIGHTS]), facts])
    parameters = sum(parameter.numel() for parameter in net.parameters())
    write_artefact(
        folder,
        kind=KIND,
        fingerprint=fingerprint,
        inputs=inputs,
        config=config,
        model=facts,
        fps=fps,
        tasks=list(tasks),
        parameters=parameters,
    )


def load_world_model(
    path: Path | str,
    *,
    device: str = "auto",
    sampling_steps: int | None = None,
    infer_width: int = 32,
    temperature: float = 1.0,
    tasks: Sequence[str] | None = None,
) -> LoadedWorldModel:
    """Load the finished artefact at ``path``; see ``LoadedWorldModel`` for the settings. ``tasks`` are by default those of its data."""
    from robowm.train.distributed import pick_device

    path = Path(path)
    record = read_artefact(path, KIND)
    net = rebuild(record["model"])
    load_weights(net, path, "the world model")
    net = net.to(pick_device(device)).eval()
    name = record["fingerprint"] + _sampled_otherwise(sampling_steps, net.design.sampling_steps, temperature)
    known = record.get("tasks", ()) if tasks is None else tasks
    return LoadedWorldModel(name, net, sampling_steps=sampling_steps, infer_width=infer_width, temperature=temperature, tasks=known)


def _sampled_otherwise(steps: int | None, own_steps: int, temperature: float) -> str:
    """Return what tells a model sampled in an unusual way from the same weights sampled as they are by default: "-steps2", or nothing."""
    return (f"-steps{steps}" if steps not in (None, own_steps) else "") + (f"-temperature{temperature:g}" if temperature != 1 else "")
