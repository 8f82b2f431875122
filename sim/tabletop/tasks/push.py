"""Push a puck onto a marked disc with the closed gripper."""

from __future__ import annotations

import numpy as np

from sim.tabletop.scene import OBJECT, SEEN_ONLY
from sim.tabletop.task import Start, Task, target_distance, uniform

RADIUS, HALF_HEIGHT = 0.024, 0.014  # of the puck
CLOSE = 0.015  # metres between the centres of puck and disc


def _bodies() -> str:
    return f"""
    <body name="object"><freejoint name="object"/>
      <geom type="cylinder" size="{RADIUS} {HALF_HEIGHT}" rgba=".90 .15 .12 1" {OBJECT} density="1000"
        friction=".5 .01 .0005" priority="1"/></body>
    <body name="target" mocap="true"><geom type="cylinder" size=".034 .0005" pos="0 0 .0005" rgba=".15 .75 .30 1" {SEEN_ONLY}/></body>"""


def _sample(rng: np.random.Generator, start_range: float) -> Start:
    hand = uniform(rng, [-0.06, 0.03, 0.08, -0.2, 1.0], [0.06, 0.11, 0.10, 0.2, 1.0], start_range)
    puck = uniform(rng, [-0.06, 0.0, HALF_HEIGHT, 0.0], [0.06, 0.05, HALF_HEIGHT, 0.0], start_range)
    disc = uniform(rng, [-0.07, -0.09, 0.0], [0.07, -0.06, 0.0], start_range)
    return Start(hand, puck, disc)


def _holds(state: np.ndarray, environment_state: np.ndarray) -> np.ndarray:
    return (target_distance(environment_state) < CLOSE) & (environment_state[..., 2] < HALF_HEIGHT + 0.004)


TASK = Task("push", "push the red puck onto the green disc", _bodies(), _sample, _holds)
