"""What a video network is told about its data; the rest of its arguments are its own business."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VideoShape:
    """V views of h x w pixels; C context rows and F rows to predict; S proprioception and A action dimensions.

    Every video network is a module ``network(video, level, state, action) -> (video, state)``:

        video   f32 [B, C+F, V, 3, h, w]  context rows, then the rows to predict, with their noise; pixels in [-1, 1]
        level   f32 [B, C+F]              noise level of each row, 0 = clean, 1 = noise
        state   f32 [B, C, S]             proprioception of the context rows, normalised
        action  f32 [B, F, A]             actions that lead to the rows to predict, normalised
        returns f32 [B, F, V, 3, h, w], the clean pixels, and f32 [B, F, S], proprioception minus that of the last context row
    """

    views: int
    height: int
    width: int
    context: int
    frames: int
    state_dim: int
    action_dim: int
