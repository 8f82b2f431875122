"""Pick up a standing square peg and push it down into a square socket. The walls are taller than the clearance is wide: a crooked or
misplaced peg stands on them."""

from __future__ import annotations

import numpy as np

from sim.tabletop.scene import FIXTURE, OBJECT
from sim.tabletop.task import Start, Task, object_upright, target_distance, uniform

HALF, HALF_HEIGHT = 0.013, 0.030  # of the peg
CLEARANCE = 0.008  # on each side
WALL, DEPTH = 0.006, 0.024  # half thickness and height of the socket's walls


def _bodies() -> str:
    inner, offset = HALF + CLEARANCE, HALF + CLEARANCE + WALL
    socket = f'type="box" rgba=".15 .45 .85 1" {FIXTURE}'
    long, half = inner + 2 * WALL, DEPTH / 2
    return f"""
    <body name="object"><freejoint name="object"/>
      <geom type="box" size="{HALF} {HALF} {HALF_HEIGHT}" rgba=".90 .15 .12 1" {OBJECT}/></body>
    <body name="target" mocap="true">
      <geom {socket} size="{long} {WALL} {half}" pos="0 {offset} {half}"/>
      <geom {socket} size="{long} {WALL} {half}" pos="0 -{offset} {half}"/>
      <geom {socket} size="{WALL} {inner} {half}" pos="{offset} 0 {half}"/>
      <geom {socket} size="{WALL} {inner} {half}" pos="-{offset} 0 {half}"/></body>"""


def _sample(rng: np.random.Generator, start_range: float) -> Start:
    hand = uniform(rng, [0.0, -0.04, 0.10, -0.2, 0.0], [0.06, 0.04, 0.12, 0.2, 0.0], start_range)
    peg = uniform(rng, [-0.10, -0.08, HALF_HEIGHT, -0.5], [-0.03, 0.06, HALF_HEIGHT, 0.5], start_range)
    socket = uniform(rng, [0.05, -0.06, -0.3], [0.08, 0.06, 0.3], start_range)
    return Start(hand, peg, socket)


def _holds(state: np.ndarray, environment_state: np.ndarray) -> np.ndarray:
    inside = target_distance(environment_state) < CLEARANCE + 0.003
    down = (environment_state[..., 2] < HALF_HEIGHT + 0.006) & (object_upright(environment_state) > 0.98)
    return inside & down


TASK = Task("insert", "put the red peg into the blue socket", _bodies(), _sample, _holds)
