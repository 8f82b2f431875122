"""A classifier that reads success off the pictures and a world model that draws it, both without learning."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from robowm.data.store import StoreSpec
from robowm.reward.success import SuccessClassifier
from robowm.types import Obs

SIDE = 4
SPEC = StoreSpec({"external": (SIDE, SIDE)}, ["x"], ["a", "b"], None, 10.0, "absolute")


class Reader(SuccessClassifier):
    """P(success) is the brightness of the row, 0 to 1."""

    def probabilities(self, frames):
        return frames["external"][..., 0, 0, 0].astype(np.float32) / 255


def reader(threshold=0.6, consecutive=2):
    return Reader("judge", SimpleNamespace(cameras={"external": (SIDE, SIDE)}, rows=2), threshold, consecutive)


@dataclass(frozen=True)
class Level:
    """Brightness f64 [N]: the memory of ``Brightening``."""

    value: np.ndarray

    def take(self, rows):
        return Level(self.value[rows])

    def put(self, rows, other):
        value = self.value.copy()
        value[rows] = other.value
        return Level(value)


class Brightening:
    """A WorldModel: the picture brightens by 20 a step, plus 20 where the step's own noise is positive."""

    name, chunk, cameras = "brightening", 2, ("external",)

    def start(self, obs):
        return Level(obs.state[:, -1, 0].astype(float))

    def predict(self, memory, actions, rngs):
        noise = np.stack([rng.standard_normal(actions.shape[1]) > 0 for rng in rngs])  # [N, H]
        level = np.minimum(memory.value[:, None] + np.cumsum(20 + 20 * noise, 1), 255)
        return observe(level), Level(level[:, -1])


def observe(level: np.ndarray) -> Obs:
    """Return pictures of brightness ``level`` [N, K]."""
    frames = np.broadcast_to(level[..., None, None, None], (*level.shape, SIDE, SIDE, 3)).astype(np.uint8)
    return Obs({"external": frames}, level[..., None].astype(np.float32), None, tuple("brighten" for _ in level))


class DarkStarts:
    seeds = range(30_000, 30_100)
    spec, task_name, name = SPEC, "fake/brighten", "dark"

    def __call__(self, seeds):
        return observe(np.zeros((len(seeds), 1)))
