"""A pretrained diffusers video transformer as the world model's network (nn/shape.py): Wan, whose tokens each carry a noise level.

Views are tiled along the height, so its attention joins them (Ctrl-World, Guo et al. 2025). Actions and proprioception enter where text
did: one token per row. Pixels are unshuffled and projected to the transformer's channels by layers that are trained from scratch, instead
of its own autoencoder, whose temporal compression would tie the chunk's length to it; so expect to fine-tune, not to run it as it is.

    network: {_target_: robowm.world_model.pretrained.WanVideo, pretrained: /models/Wan2.2-TI2V-5B-Diffusers, subfolder: transformer}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robowm.errors import UserError
from robowm.nn.blocks import zeroed
from robowm.nn.shape import VideoShape
from robowm.nn.state import StatePath

TIME_SCALE = 1000.0  # diffusers counts noise levels from 0 to 1000
COARSE = (4, 4)  # cells that the proprioception's correction looks at


class WanVideo(nn.Module):
    """See nn/shape.py for inputs and outputs. The clean rows are predicted as a change of the last context row.

    Args:
        shape: the data's sizes.
        pretrained: local folder or hub name of a ``WanTransformer3DModel``; None: fresh weights from ``config``.
        subfolder: of ``pretrained``.
        config: constructor arguments of ``WanTransformer3DModel`` where ``pretrained`` is None (a checkpoint of ours holds them).
        patch: pixel-unshuffle factor in front of the transformer's own patches.
        checkpointing: trade compute for memory in the backward pass.
    """

    def __init__(
        self,
        *,
        shape: VideoShape,
        pretrained: str | Path | None = None,
        subfolder: str | None = None,
        config: Mapping[str, Any] | None = None,
        patch: int = 8,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        if (pretrained is None) == (config is None):
            raise UserError("WanVideo needs exactly one of pretrained (a folder or hub name) and config (its constructor arguments)")
        self.transformer = _load(pretrained, subfolder) if config is None else _build(config)
        if checkpointing:
            self.transformer.enable_gradient_checkpointing()
        settings = self.transformer.config
        self.shape, self.patch, self._checkpointing = shape, patch, checkpointing
        self.step = patch * settings.patch_size[1]
        if settings.patch_size[0] != 1 or shape.height % self.step or shape.width % self.step:
            size = f"{shape.height}x{shape.width}"
            raise UserError(f"frames of {size} do not divide by {self.step} (patch times {list(settings.patch_size)} of the transformer)")
        tokens = settings.text_dim
        self.encode = nn.Conv2d(3 * patch**2, settings.in_channels, 1)
        self.decode = zeroed(nn.Conv2d(settings.out_channels, 3 * patch**2, 1))
        self.tell = nn.Sequential(nn.Linear(shape.state_dim + shape.action_dim + 1, tokens), nn.SiLU(), nn.Linear(tokens, tokens))
        self.place = nn.Parameter(0.02 * torch.randn(shape.context + shape.frames, tokens))
        self.state = StatePath(shape, settings.out_channels, COARSE, 0)

    def forward(self, video: Tensor, level: Tensor, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See nn/shape.py."""
        batch, rows, context = len(video), video.shape[1], self.shape.context
        expected, _ = self.state.expect(state, action)
        tiled = video.transpose(2, 3).flatten(3, 4)  # [B, R, 3, V h, w]
        x = self.encode(F.pixel_unshuffle(tiled.flatten(0, 1), self.patch))
        x = x.unflatten(0, (batch, rows)).transpose(1, 2)  # [B, c, R, V h / p, w / p]
        per_row = self.shape.views * (self.shape.height // self.step) * (self.shape.width // self.step)
        times = (level * TIME_SCALE).repeat_interleave(per_row, 1)  # a level for every token, rows in order
        y = self.transformer(x, times, self._tokens(state, expected, action), return_dict=False)[0].transpose(1, 2)[:, context:]
        painted = F.pixel_shuffle(self.decode(y.flatten(0, 1)), self.patch).unflatten(0, (batch, -1))
        painted = painted.unflatten(3, (self.shape.views, -1)).transpose(2, 3)
        seen = F.adaptive_avg_pool2d(y.mean(1), COARSE)
        return video[:, context - 1 : context] + painted, expected + self.state.correct(seen, seen.new_zeros(batch, 0))

    def node(self) -> dict[str, Any]:
        """Return the node that rebuilds this network without the pretrained folder."""
        config = {key: value for key, value in self.transformer.config.items() if not key.startswith("_")}
        config = {key: list(value) if isinstance(value, tuple) else value for key, value in config.items()}
        target = f"{type(self).__module__}.{type(self).__qualname__}"
        return {"_target_": target, "config": config, "patch": self.patch, "checkpointing": self._checkpointing}

    def _tokens(self, state: Tensor, expected: Tensor, action: Tensor) -> Tensor:
        """Return one token per row, [B, C+F, text_dim]: proprioception seen or expected, the action that leads to it, which of both."""
        past = torch.cat([state, state.new_zeros(*state.shape[:2], self.shape.action_dim), state.new_zeros(*state.shape[:2], 1)], -1)
        future = torch.cat([state[:, -1:] + expected, action, action.new_ones(*action.shape[:2], 1)], -1)
        return self.tell(torch.cat([past, future], 1)) + self.place


def _build(config: Mapping[str, Any]) -> nn.Module:
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(**{key: tuple(value) if isinstance(value, list) else value for key, value in config.items()})


def _load(pretrained: str | Path, subfolder: str | None) -> nn.Module:
    from diffusers import WanTransformer3DModel

    where = f"{pretrained}/{subfolder}" if subfolder else str(pretrained)
    try:
        return WanTransformer3DModel.from_pretrained(str(pretrained), subfolder=subfolder)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"no WanTransformer3DModel at {where} ({reason}); give a local diffusers folder or a hub name you can reach"
        ) from error
