"""The world model as a denoiser: context rows and actions in, an estimate of the clean next rows out.

    B clips, C context rows (the pinned first one, then the last k), F rows predicted at a time, D entries of a row (see rows.py)

A network that satisfies nn/shape.py's contract does the work; this module owns what every network shares: the layout of rows, the
normalisers, which camera's first frame stays pinned, and how the model is rebuilt from its checkpoint.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from robowm.data.normalize import Normalizer
from robowm.diffusion.schedule import staggered
from robowm.errors import UserError
from robowm.nn.shape import VideoShape
from robowm.world_model.rows import RowLayout

TRUSTED = ("robowm.", "diffusers.")  # import paths that a stored checkpoint may name


@dataclass(frozen=True)
class Context:
    """What the next rows are conditioned on."""

    rows: Tensor  # f32 [B, C, D]
    level: Tensor  # f32 [B, C], how much noise was added to each row
    action: Tensor  # f32 [B, F, A], normalised


@dataclass(frozen=True)
class Design:
    """A world model's settings, as configured and as stored with its weights."""

    network: Mapping[str, Any]  # node with `_target_`, see nn/shape.py
    context: int = 2  # k, last rows that the model sees
    chunk: int = 4  # F
    pinned: Sequence[str] = ("external",)  # cameras whose first frame stays in context; none: no pinned row
    cameras: Sequence[str] | None = None  # None: all of the data's but masks
    sampling_steps: int = 1  # steps from noise to rows when predicting
    lag: int = 0  # of these, by which each row of a chunk starts after the one before it

    def __post_init__(self):
        for name in ("context", "chunk", "sampling_steps"):
            if int(getattr(self, name)) != getattr(self, name) or getattr(self, name) < 1:
                raise UserError(f"world_model.{name}={getattr(self, name)!r}; it must be a whole number of at least 1")
        if isinstance(self.pinned, str) or not isinstance(self.pinned, Sequence):
            raise UserError(f"world_model.pinned={self.pinned!r}; it is a list of cameras, [] for none")
        staggered(1, self.chunk, self.lag)
        if "_target_" not in self.network:
            raise UserError("world_model.network names no _target_, e.g. robowm.nn.unet.VideoUNet")

    def schedule(self, steps: int | None = None) -> Tensor:
        """Return the sampler's noise levels [N+1, F] with ``steps`` steps a row, by default the model's own number."""
        return staggered(self.sampling_steps if steps is None else steps, self.chunk, self.lag)


class WorldModelNet(nn.Module):
    """A denoiser of rows. Build it with ``build``."""

    def __init__(self, network: nn.Module, layout: RowLayout, design: Design, state: Normalizer, action: Normalizer) -> None:
        super().__init__()
        self.network, self.layout, self.design = network, layout, design
        self.normalize_state, self.normalize_action = state, action
        self.register_buffer("pinned_mask", layout.camera_mask(design.pinned), persistent=False)

    @property
    def context_rows(self) -> int:
        """C."""
        return self.design.context + bool(self.design.pinned)

    def x0(self, x: Tensor, level: Tensor, context: Context) -> Tensor:
        """Return the estimate [B, F, D] of the clean rows behind ``x`` [B, F, D] at noise ``level`` [B, F].

        Proprioception is regressed from context and actions: what x holds of it is not looked at, so its samples are means.
        """
        rows = self._blank(context.rows)
        video = torch.cat([self.layout.video(rows), self.layout.video(x)], 1)
        video, state = self.network(video, torch.cat([context.level, level], 1), self.layout.state(rows), context.action)
        return self.layout.join(video.float(), self.layout.state(rows)[:, -1:] + state.float())

    def _blank(self, rows: Tensor) -> Tensor:
        """Hide the other cameras' pixels of the pinned row."""
        if not self.design.pinned:
            return rows
        return torch.cat([rows[:, :1] * self.pinned_mask, rows[:, 1:]], 1)

    def facts(self) -> dict[str, Any]:
        """Return the JSON that ``rebuild`` makes this model from."""
        network = self.network.node() if hasattr(self.network, "node") else dict(self.design.network)
        design = replace(self.design, network=network)
        return {
            "design": {**vars(design), "pinned": list(design.pinned), "cameras": list(self.layout.cameras)},
            "cameras": {name: list(size) for name, size in self.layout.cameras.items()},
            "state": self.normalize_state.to_json(),
            "action": self.normalize_action.to_json(),
        }


def build(design: Design, cameras: Mapping[str, tuple[int, int]], state: Normalizer, action: Normalizer) -> WorldModelNet:
    """Build a model with fresh weights (or a backbone's pretrained ones) for data with these cameras and normalisers."""
    layout = RowLayout(cameras, len(state.low))
    rows = design.context + bool(design.pinned)
    shape = VideoShape(len(layout.cameras), *layout.size, rows, design.chunk, layout.state_dim, len(action.low))
    return WorldModelNet(build_network(design.network, shape), layout, design, state, action)


def rebuild(facts: Mapping[str, Any]) -> WorldModelNet:
    """Build the model that ``facts()`` described, to load its weights into. ``_target_`` is checked before anything is imported."""
    sizes = {name: tuple(size) for name, size in facts["cameras"].items()}
    return build(Design(**facts["design"]), sizes, Normalizer.from_json(facts["state"]), Normalizer.from_json(facts["action"]))


def build_network(node: Mapping[str, Any], shape: VideoShape) -> nn.Module:
    """Instantiate ``node`` (``_target_`` and keywords) for ``shape``. Only import paths under ``TRUSTED`` are imported."""
    target, arguments = node["_target_"], {key: value for key, value in node.items() if key != "_target_"}
    if not str(target).startswith(TRUSTED):
        raise UserError(f"world_model.network names {target!r}; only {' and '.join(t + '*' for t in TRUSTED)} are trusted")
    module, _, name = str(target).rpartition(".")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"world_model.network: {target!r} cannot be imported ({error})") from error
    try:
        return factory(shape=shape, **arguments)
    except TypeError as error:
        raise UserError(f"world_model.network: {target} does not fit its settings ({error})") from error
