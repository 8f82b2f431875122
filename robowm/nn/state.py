"""Proprioception inside a video network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robowm.nn.blocks import zeroed
from robowm.nn.shape import VideoShape


class StatePath(nn.Module):
    """Proprioception: what actions alone let one expect, in the conditioning from the start, then a correction from what the pictures show.

    A small network sees the last states and the actions; where the hand will be is mostly its target. Contacts (does the gripper close on
    something?) need the pictures.
    """

    def __init__(self, shape: VideoShape, channels: int, coarse: tuple[int, int], condition: int, width: int = 128) -> None:
        super().__init__()
        self._shape = shape
        seen = shape.context * shape.state_dim + shape.frames * shape.action_dim
        ahead = shape.frames * shape.state_dim
        self.condition_dim = seen + ahead
        self.linear = nn.Linear(seen, ahead)
        self.curved = nn.Sequential(nn.Linear(seen, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, ahead))
        self.look = nn.Sequential(nn.Conv2d(channels, 16, 1), nn.Flatten(), nn.SiLU())
        self.fix = nn.Sequential(nn.Linear(16 * coarse[0] * coarse[1] + condition, width), nn.SiLU(), zeroed(nn.Linear(width, ahead)))

    def expect(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the expected change [B, F, S] and all that goes into the conditioning vector, [B, condition_dim]."""
        seen = torch.cat([state.flatten(1), action.flatten(1)], 1)
        expected = self.linear(seen) + self.curved(seen)
        return expected.unflatten(1, (self._shape.frames, -1)), torch.cat([seen, expected], 1)

    def correct(self, features: Tensor, condition: Tensor) -> Tensor:
        """Return the correction [B, F, S] from the coarsest feature map."""
        return self.fix(torch.cat([self.look(features), condition], 1)).unflatten(1, (self._shape.frames, -1))
