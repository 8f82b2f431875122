"""Grasp a cube that lies at a random yaw and put it into a shallow tray."""

from __future__ import annotations

import numpy as np

from sim.tabletop.scene import FIXTURE, OBJECT
from sim.tabletop.task import Start, Task, object_flat, target_distance, uniform

HALF = 0.018  # of the cube's edge
TRAY = 0.040  # half the tray's outer edge
RIM = 0.008  # its height


def _bodies() -> str:
    tray = f'rgba=".15 .45 .85 1" {FIXTURE}'
    return f"""
    <body name="object"><freejoint name="object"/>
      <geom type="box" size="{HALF} {HALF} {HALF}" rgba=".90 .15 .12 1" {OBJECT}/></body>
    <body name="target" mocap="true">
      <geom type="box" size="{TRAY} {TRAY} .001" pos="0 0 .001" {tray}/>
      <geom type="box" size="{TRAY} .003 {RIM / 2}" pos="0 {TRAY} {RIM / 2}" {tray}/>
      <geom type="box" size="{TRAY} .003 {RIM / 2}" pos="0 -{TRAY} {RIM / 2}" {tray}/>
      <geom type="box" size=".003 {TRAY} {RIM / 2}" pos="{TRAY} 0 {RIM / 2}" {tray}/>
      <geom type="box" size=".003 {TRAY} {RIM / 2}" pos="-{TRAY} 0 {RIM / 2}" {tray}/></body>"""


def _sample(rng: np.random.Generator, start_range: float) -> Start:
    hand = uniform(rng, [0.0, -0.04, 0.09, -0.2, 0.0], [0.06, 0.04, 0.11, 0.2, 0.0], start_range)
    cube = uniform(rng, [-0.10, -0.10, HALF, -0.6], [-0.02, 0.08, HALF, 0.6], start_range)
    tray = uniform(rng, [0.055, -0.07, 0.0], [0.075, 0.07, 0.0], start_range)
    return Start(hand, cube, tray)


def _holds(state: np.ndarray, environment_state: np.ndarray) -> np.ndarray:
    inside = target_distance(environment_state) < TRAY - HALF
    resting = (environment_state[..., 2] < HALF + 0.006) & (object_flat(environment_state) > 0.99)
    return inside & resting & (state[..., 4] < 0.25)  # released: the fingers are further apart than the cube is wide


TASK = Task("pick_place", "put the red cube into the blue tray", _bodies(), _sample, _holds)
