"""N episodes of one robosuite task in this process."""

from __future__ import annotations

from collections.abc import Sequence

from sim.robosuite.simulator import Simulator
from sim.robosuite.tasks import TASKS
from sim.turns import Turns

GROUPS = (1, 2)  # of geoms that are drawn; 0 holds the shapes that collide, which would hide what robosuite shows


def build(n: int, task: str, image_size: int, cameras: Sequence[str], action_kind: str) -> Turns:
    """Return a Batch: what a worker process starts from. Episodes are rows of numbers, so it makes room for ``n`` when they come."""
    return Turns(Simulator(task, action_kind), image_size, {name: TASKS[task].cameras[name] for name in cameras}, GROUPS)
