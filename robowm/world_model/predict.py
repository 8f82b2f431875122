"""A trained world model behind ``protocols.WorldModel``: start from real rows, then predict chunk after chunk on its own output.

The memory is a ring of K rows and the pinned first frame, so cost and memory per chunk do not grow with the length of a rollout. Every
inference runs at one fixed batch width, filled up by repeating a row, and each episode draws from its own generator: an episode does not
depend on which others run beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from robowm.artefacts import read_artefact
from robowm.diffusion.sample import sample
from robowm.diffusion.schedule import together
from robowm.errors import UserError
from robowm.train.distributed import pick_device
from robowm.types import Obs
from robowm.world_model.build import build
from robowm.world_model.clips import Layout, stack, unstack
from robowm.world_model.model import Context
from robowm.world_model.train import KIND, WEIGHTS


@dataclass(frozen=True)
class Memory:
    """What N rollouts remember: constant in their length."""

    pinned: Tensor  # f32 [N, P, h, w]
    frames: Tensor  # f32 [N, K, C, h, w]
    state: Tensor  # f32 [N, K, S], normalised
    task: tuple[str, ...]


class VideoWorldModel:
    """Satisfies ``protocols.WorldModel``. ``context_level`` is the noise level that context frames are said (and made) to have."""

    def __init__(
        self, net: nn.Module, layout: Layout, *, name: str, device: torch.device, sampling_steps: int, width: int, context_level: float
    ) -> None:
        self.net, self.layout, self.name, self.chunk = net.to(device).eval(), layout, name, layout.chunk
        self._device, self._width, self._context_level = device, width, context_level
        self._levels = together(sampling_steps, layout.chunk)

    def start(self, obs: Obs) -> Memory:
        """See WorldModel; a history shorter than K rows is filled up with its first row, as in training's cold starts."""
        self._check(obs)
        k = self.layout.context
        rows = np.clip(np.arange(-k, 0) + obs.state.shape[1], 0, None)
        recent = {c: torch.from_numpy(obs.frames[c][:, rows]) for c in self.layout.cameras}
        pinned = stack({c: torch.from_numpy(obs.frames[c][:, :1]) for c in self.layout.cameras}, self.layout.pinned)[:, 0]
        state = torch.from_numpy(self.layout.state.normalize(obs.state[:, rows]))
        return Memory(pinned, stack(recent, self.layout.cameras), state, obs.task)

    def predict(self, memory: Memory, actions: np.ndarray, rngs: Sequence[np.random.Generator]) -> tuple[Obs, Memory]:
        """See WorldModel."""
        n, chunk, k = len(memory.frames), self.layout.chunk, self.layout.context
        if actions.shape != (n, chunk, len(self.layout.action.low)):
            raise UserError(f"actions have shape {actions.shape}; this world model takes {(n, chunk, len(self.layout.action.low))}")
        drawn = np.stack([rng.standard_normal((chunk + k, *memory.frames.shape[2:]), dtype=np.float32) for rng in rngs])
        action = torch.from_numpy(self.layout.action.normalize(np.asarray(actions, np.float32)))
        parts = [self._block(memory, action, torch.from_numpy(drawn), slice(i, i + self._width)) for i in range(0, n, self._width)]
        frames, state = (torch.cat(part) for part in zip(*parts, strict=True))
        shown = unstack(frames, self.layout.cameras)
        frames = stack({c: torch.from_numpy(rows) for c, rows in shown.items()}, self.layout.cameras)
        memory = Memory(
            memory.pinned,
            torch.cat([memory.frames, frames], 1)[:, -k:],
            torch.cat([memory.state, state], 1)[:, -k:],
            memory.task,
        )
        return Obs(shown, self.layout.state.unnormalize(state.numpy()), None, memory.task), memory

    @torch.inference_mode()
    def _block(self, memory: Memory, action: Tensor, drawn: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Predict at most ``width`` rollouts at exactly that batch width."""
        n = len(action[rows])
        fill = torch.arange(self._width).clamp(max=n - 1)
        chunk, level = self.layout.chunk, self._context_level
        noise, history = drawn[rows][fill].to(self._device).split([chunk, self.layout.context], 1)
        frames = memory.frames[rows][fill].to(self._device)
        context = Context(
            memory.pinned[rows][fill].to(self._device),
            (1 - level) * frames + level * history,
            torch.full((self._width,), level, device=self._device),
            memory.state[rows][fill].to(self._device),
            action[rows][fill].to(self._device),
        )
        state: list[Tensor] = []

        def denoise(x: Tensor, at: Tensor) -> Tensor:
            clean, motion = self.net(x, at, context)
            state[:] = [motion]
            return clean.clamp(-1, 1)

        clean = sample(denoise, noise, self._levels)
        return clean[:n].cpu(), state[0][:n].cpu()

    def _check(self, obs: Obs) -> None:
        sizes = {camera: rows.shape[2:4] for camera, rows in obs.frames.items()}
        wanted = dict.fromkeys(self.layout.cameras, self.layout.size)
        if any(tuple(sizes.get(camera, ())) != tuple(size) for camera, size in wanted.items()):
            raise UserError(f"this world model was trained on cameras {wanted}, found {sizes}; use the environment of its data")


def load_world_model(
    path: Path | str, *, device: str = "auto", sampling_steps: int = 2, width: int = 32, context_level: float = 0.0
) -> VideoWorldModel:
    """Return the world model of a finished ``train-world-model`` folder. ``width`` is the fixed batch width of every inference."""
    path = Path(path)
    record = read_artefact(path, KIND)
    known = {field.name for field in fields(Layout)}
    layout = Layout.from_json({key: value for key, value in record["layout"].items() if key in known})
    net = build(record["config"]["world_model"], layout)
    try:
        net.load_state_dict(load_file(path / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(f"{path / WEIGHTS} cannot be loaded: {' '.join(str(error).split())[:300]}; train it again") from error
    chosen = pick_device(device)
    return VideoWorldModel(
        net,
        layout,
        name=record["fingerprint"],
        device=chosen,
        sampling_steps=sampling_steps,
        width=width,
        context_level=context_level,
    )
