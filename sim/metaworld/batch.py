"""N episodes of one Meta-World task in this process."""

from __future__ import annotations

from collections.abc import Sequence

from sim.metaworld.simulator import EXTERNAL, Simulator
from sim.turns import Turns

CAMERAS = {"external": EXTERNAL, "wrist": "gripperPOV"}  # our names: Meta-World's
GROUPS = (0, 1, 2)  # of geoms that Meta-World draws


def build(n: int, task: str, image_size: int, cameras: Sequence[str], repeat: int) -> Turns:
    """Return a Batch: what a worker process starts from. Episodes are rows of numbers, so it makes room for ``n`` when they come."""
    return Turns(Simulator(task, repeat), image_size, {name: CAMERAS[name] for name in cameras}, GROUPS)
