"""A world model sampled by a window of rows that rolls on, where the plain one finishes a chunk and begins the next (predict.py).

The rows of the window stand on the stairs of ``world_model.lag`` (diffusion/schedule.py), the nearest almost clean, the farthest noise.
For every row that comes out the window goes down ``lag`` levels, its first row is shown and becomes context, the others move up and noise
enters at the end, across the borders of chunks (Rolling Diffusion, Ruhe et al. 2024; Rolling Forcing, arXiv 2509.25161). Rows of the
window may lie beyond the actions that are known: until they are, those rows take the last known one, as a chunk that is cut short does.
The network is the same, trained with ``lag`` and ``own_levels`` above 0; losses that roll (self_forcing.py, rl) do so chunk by chunk.

    robowm evaluate-world-model world_model._target_=robowm.world_model.rolling_window.load_rolling_world_model ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robowm.diffusion.sample import follow
from robowm.diffusion.schedule import rolling
from robowm.errors import UserError
from robowm.types import Obs
from robowm.world_model.model import Context
from robowm.world_model.predict import LoadedWorldModel, RollMemory, load_world_model, width_parts


@dataclass(frozen=True)
class WindowMemory:
    """What N episodes are conditioned on, and their windows."""

    context: RollMemory
    window: Tensor  # f32 [N, F, D], on the stairs as the last row out left them
    begun: Tensor  # bool [N]: False: there is no window yet

    def __len__(self) -> int:
        return len(self.context)

    def take(self, index: np.ndarray) -> WindowMemory:
        """Return the memory of the episodes ``index`` int [M]."""
        where = torch.from_numpy(np.asarray(index, np.int64)).to(self.window.device)
        return WindowMemory(self.context.take(index), self.window[where], self.begun[where])

    def put(self, index: np.ndarray, other: WindowMemory) -> WindowMemory:
        """Return this memory with the episodes ``index`` replaced by those of ``other``; the rest stands still."""
        where = torch.from_numpy(np.asarray(index, np.int64)).to(self.window.device)
        window, begun = (mine.index_copy(0, where, its) for mine, its in ((self.window, other.window), (self.begun, other.begun)))
        return WindowMemory(self.context.put(index, other.context), window, begun)


class RollingWorldModel:
    """Satisfies ``robowm.protocols.WorldModel``: ``model``'s network by a rolling window, ``lag`` passes a row.

    ``told`` actions, at most, are looked at together (``chunk`` of the protocol); a window looks ahead no further than them.
    """

    def __init__(self, model: LoadedWorldModel, *, told: int = 60) -> None:
        if told < 1:
            raise UserError(f"told={told}; it must be at least 1")
        design = model.net.design
        self._model, self.name, self.chunk = model, f"{model.name}-rolling{told}", told
        self.cameras, self.tasks, self.net = model.cameras, model.tasks, model.net
        self._onto, self._down = rolling(model.steps, design.chunk, design.lag)

    def start(self, obs: Obs) -> WindowMemory:
        """See WorldModel."""
        context = self._model.start(obs)
        window = torch.zeros((len(context), self.net.design.chunk, self.net.layout.dim), device=context.first.device)
        return WindowMemory(context, window, torch.zeros(len(context), dtype=torch.bool, device=window.device))

    def predict(self, memory: WindowMemory, actions: np.ndarray, rngs: Sequence[np.random.Generator]) -> tuple[Obs, WindowMemory]:
        """See WorldModel."""
        actions = self._model.checked(actions, len(memory), self.chunk)
        rows, size = actions.shape[1], self.net.design.chunk
        action = self._model.normalized(np.concatenate([actions, actions[:, -1:].repeat(size - 1, 1)], 1))
        if len(new := torch.nonzero(~memory.begun).flatten().cpu().numpy()):
            memory = memory.put(new, self._begin(memory.take(new), action[new, :size], [rngs[i] for i in new]))
        found = []
        for i in range(rows):
            window = self._move(memory, action[:, i : i + size], self._down)
            found.append(self.net.layout.rounded(window[:, :1]))
            window = torch.cat([window[:, 1:], self._model.noise(rngs, 1)], 1)
            memory = replace(memory, context=memory.context.push(found[-1]), window=window)
        return self._model.shown(torch.cat(found, 1), memory.context.task), memory

    def _begin(self, memory: WindowMemory, action: Tensor, rngs: Sequence[np.random.Generator]) -> WindowMemory:
        """Return the memory of episodes without a window with one, brought onto the stairs under ``action`` f32 [N, F, A]."""
        memory = replace(memory, window=self._model.noise(rngs, self.net.design.chunk), begun=torch.ones_like(memory.begun))
        return replace(memory, window=self._move(memory, action, self._onto))

    @torch.inference_mode()
    def _move(self, memory: WindowMemory, action: Tensor, levels: Tensor) -> Tensor:
        """Return the windows [N, F, D] after following ``levels`` under ``action`` f32 [N, F, A]."""
        found = []
        for count, (rows, window, acted) in width_parts(self._model.width, self._model.context(memory.context), memory.window, action):
            given = Context(rows, torch.zeros(rows.shape[:2], device=rows.device), acted)
            found.append(follow(lambda x, level, c=given: self.net.x0(x, level, c), window, levels)[:count])
        return torch.cat(found)


def load_rolling_world_model(path: Path | str, *, told: int = 60, **settings: Any) -> RollingWorldModel:
    """Load the finished artefact at ``path`` as a rolling window; ``settings`` are those of ``load_world_model``."""
    return RollingWorldModel(load_world_model(path, **settings), told=told)
