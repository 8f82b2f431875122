"""Fake world models on fake stores, chosen by the name of their folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robowm.types import Obs

CAMERAS = {"external": (32, 32), "wrist": (32, 32)}


@dataclass(frozen=True)
class Memory:
    last: dict  # {camera: uint8 [N, h, w, 3]}
    state: np.ndarray
    t: int
    task: tuple

    def take(self, index):
        return self


class Film:
    """Shows ``draw(first frame [N, h, w, 3], t, action [N, A], rngs)`` at step t, in all of its cameras."""

    chunk = 4

    def __init__(self, name, draw, cameras=CAMERAS):
        self.name, self._draw, self.cameras = name, draw, cameras

    def start(self, obs):
        return Memory({camera: obs.frames[camera][:, -1] for camera in self.cameras}, obs.state[:, -1:], 0, obs.task)

    def predict(self, memory, actions, rngs):
        frames = {
            camera: np.stack([self._draw(first, memory.t + k, actions[:, k], rngs) for k in range(actions.shape[1])], 1).astype(np.uint8)
            for camera, first in memory.last.items()
        }
        state = memory.state.repeat(actions.shape[1], 1)
        return Obs(frames, state, None, memory.task), Memory(memory.last, memory.state, memory.t + actions.shape[1], memory.task)


def held(first, t, action, rngs):
    """The start for ever."""
    return first


def lively(first, t, action, rngs):
    """The start, rolled on by a pixel a frame."""
    return np.roll(first, t + 1, axis=2)


def fading(first, t, action, rngs):
    """Lively, but grey after thirty frames."""
    share = max(0.0, 1 - t / 30)
    return lively(first, t, action, rngs) * share + 100 * (1 - share)


def flickering(first, t, action, rngs):
    """Lively, but every other frame is a negative after thirty frames."""
    shown = lively(first, t, action, rngs)
    return 255 - shown if t > 30 and t % 2 else shown


def obedient(first, t, action, rngs):
    """As bright as the action's second entry says."""
    return np.broadcast_to((127 + 600 * action[:, 1])[:, None, None, None].clip(0, 255), first.shape)


DRAWN = {"held": held, "lively": lively, "fading": fading, "flickering": flickering, "obedient": obedient}


def load(path, *, temperature, infer_width=32):
    """Satisfies ``Load``: the folder's last word says what is drawn."""
    name = Path(path).name
    return Film(name + ("" if temperature == 1 else f"-temperature{temperature:g}"), DRAWN[name])
