"""What a camera cannot see: the object's mass, how it slides and how it is gripped, drawn anew with each start.

    amount h >= 0; each number is nominal * SPAN ** (h * u), u ~ U(-1, 1): h = 1 reaches SPAN times up and down

The draws come from a generator of their own, so what a seed shows at its start is the same for every h. Contacts are ranked, so that the
object slides on table and fixtures with one coefficient and along the fingers with another, whatever else it touches.

Measured. One action sequence under 8 draws, 50 push starts, 50 steps, deviation of the object's final position (mean, median in mm):

    h                        0       0.5          1
    expert's actions         0      4.6, 2.2     5.9, 2.7
    ... under noise          0     20.5, 0.3    20.3, 0.7      (0.02 m; many never touch, and a few shoot a pinched puck away)
    open-loop actions        0     45.3, 4.2    56.9, 10.4

The expert, which looks, succeeds in all of 100 starts of push, pick_place and insert at h = 1, as at h = 0.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np

from sim.tabletop.scene import FINGER_JOINTS

HIDDEN_NAMES = ("object_mass", "object_friction", "grip_friction")  # kg, and two sliding coefficients
SPAN = np.array([4.0, 4.0, 2.0])
STREAM = 3  # keeps these draws apart from those of the start state


def hidden_names(amount: float) -> tuple[str, ...]:
    """Return what the simulator's truth names beside the visible state: nothing where nothing is drawn."""
    return HIDDEN_NAMES if amount > 0 else ()


def draw(nominal: np.ndarray, seed: int, amount: float) -> np.ndarray:
    """Return the hidden numbers f64 [3] of start ``seed`` around ``nominal`` [3]."""
    return nominal * SPAN ** (amount * np.random.default_rng([STREAM, int(seed)]).uniform(-1, 1, len(HIDDEN_NAMES)))


class HiddenModel:
    """A copy of ``model``, one for each environment, whose object can be made heavier or lighter, slippery or rough."""

    def __init__(self, model: mujoco.MjModel):
        self.model = copy.copy(model)
        self.model.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC  # pyramids let rough objects sink by millimetres, which could be seen
        self._scratch = mujoco.MjData(self.model)
        self._body = model.body("object").id
        self._object = np.flatnonzero(model.geom_bodyid == self._body)
        fingers = [model.body(name).id for name in FINGER_JOINTS]
        self._fingers = np.flatnonzero(np.isin(model.geom_bodyid, fingers))
        self._inertia = model.body_inertia[self._body].copy()
        self.nominal = np.array([model.body_mass[self._body], *_frictions(model, self._object, self._fingers)])  # f64 [3]
        self.model.geom_priority[self._object], self.model.geom_priority[self._fingers] = 1, 2

    def set(self, numbers: np.ndarray) -> None:
        """Give the object ``numbers`` f64 [3]; what went before leaves no trace."""
        mass, slide, grip = numbers
        self.model.body_mass[self._body] = mass
        self.model.body_inertia[self._body] = self._inertia * (mass / self.nominal[0])
        self.model.geom_friction[self._object, 0] = slide
        self.model.geom_friction[self._fingers, 0] = grip
        mujoco.mj_resetData(self.model, self._scratch)
        mujoco.mj_setConst(self.model, self._scratch)  # what the solver derives from masses


def _frictions(model: mujoco.MjModel, body: np.ndarray, fingers: np.ndarray) -> tuple[float, float]:
    """Return the sliding coefficients of the object on the floor and along a finger by MuJoCo's rule: the larger of the highest rank."""

    def between(*geoms: int) -> float:
        rank, friction = model.geom_priority[list(geoms)], model.geom_friction[list(geoms), 0]
        return float(friction[rank == rank.max()].max())

    return between(body[0], model.geom("floor").id), between(body[0], fingers[0])
