"""DiscsEnv: an agent disc pushes a puck that glides with a friction of its own in each episode. Vectorised numpy, 16 pixels by default.

    N episodes side by side; positions in a unit square, x to the right, y up; speeds in squares a second

The agent goes where it is told (action = velocity); the puck moves by contact, bounces off walls and slows down at a rate that is drawn
with the start state and shown nowhere, so that after a hit several futures fit what has been seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robowm.errors import UserError
from robowm.types import Obs, Steps
from sim.checks import check_actions, check_seeds, check_states

FPS, SUBSTEPS = 10.0, 8
AGENT, PUCK = 0.12, 0.10  # radii
TOP_SPEED = 1.2  # of the agent along each axis
FASTEST = 3.0  # of the puck: pinched between agent and wall it would leave the table
BOUNCE = 0.9  # speed kept at a wall or a contact
FRICTION = (0.3, 4.0)  # range of the puck's slowing down, 1/s, uniform in the logarithm
GOAL = 0.8  # the goal holds while the puck's centre is right of it
BACKGROUND, AGENT_COLOUR, PUCK_COLOUR = (np.array(c, np.float32) for c in ((40, 40, 48), (80, 160, 240), (240, 90, 60)))
MEASURED = (0, 1)  # columns of the state that proprioception shows: the agent's position
TASK = "push the orange puck to the right"


class DiscsEnv:
    """Satisfies ``robowm.protocols.Env`` and ``Rewindable``.

    Actions f32 [N, H, 2]: velocity of the agent, clipped to +-1.2. Proprioception f32 [N, K, 2]: where the agent is. Environment state f32
    [N, K, 7]: agent x y, puck x y, puck velocity x y, friction. Control runs at 10 Hz; one camera, "top".

    Args:
        n: episodes side by side.
        image_size: pictures are square, at least 8 pixels.
    """

    fps, task_name = FPS, "discs/push"

    def __init__(self, n: int = 32, image_size: int = 16):
        if n < 1 or image_size < 8:
            raise UserError(f"discs: n={n}, image_size={image_size}; use n >= 1 and at least 8 pixels")
        self.n, self.image_size = n, image_size
        self.settings = {"image_size": image_size}
        centres = (np.arange(image_size, dtype=np.float32) + 0.5) / image_size
        self._x, self._y = centres[None, :], centres[::-1, None]

    def spec(self) -> dict:
        """Return the fields of a store's specification."""
        return {
            "cameras": {"top": (self.image_size, self.image_size)},
            "state_names": ["agent_x", "agent_y"],
            "action_names": ["velocity_x", "velocity_y"],
            "action_kind": "delta",
            "environment_state_names": ["agent_x", "agent_y", "puck_x", "puck_y", "puck_vx", "puck_vy", "friction"],
            "fps": FPS,
        }

    def reset(self, seeds: Sequence[int]) -> Obs:
        """See Env."""
        check_seeds(self.task_name, seeds, self.n)
        self._state = np.stack([_start(np.random.default_rng(int(seed))) for seed in seeds])  # f64 [N, 7]
        return self._obs(self._state[:, None])

    def goal_holds(self) -> np.ndarray:
        """See Env."""
        return self._state[:, 2] > GOAL

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        """See Env."""
        actions, active = check_actions(self.task_name, actions, active, len(self._state), 2)
        states = []
        for k in range(actions.shape[1]):
            self._state = np.where(active[:, None], advance(self._state, actions[:, k]), self._state)
            states.append(self._state)
        obs = self._obs(np.stack(states, 1))
        success = obs.environment_state[..., 2] > GOAL
        valid = np.broadcast_to(active[:, None], success.shape).copy()
        return Steps(obs, success.astype(np.float32), success, np.zeros_like(success), valid)

    def get_state(self) -> np.ndarray:
        """See Rewindable: f64 [N, 7]."""
        return self._state.copy()

    def set_state(self, states: np.ndarray) -> Obs:
        """See Rewindable."""
        self._state = check_states(self.task_name, states, self.n, 7).copy()
        return self._obs(self._state[:, None])

    def close(self) -> None:
        """Nothing to free."""

    def _obs(self, states: np.ndarray) -> Obs:
        """Return what [N, K, 7] looks like."""
        truth = states.astype(np.float32)
        return Obs({"top": self._draw(truth)}, truth[..., list(MEASURED)], truth, (TASK,) * len(truth))

    def _draw(self, truth: np.ndarray) -> np.ndarray:
        """Return uint8 [N, K, h, w, 3]; edges are blended over one pixel, so that motion below a pixel shows."""
        picture = np.broadcast_to(BACKGROUND, (*truth.shape[:2], self.image_size, self.image_size, 3)).astype(np.float32)
        for x, y, radius, colour in ((2, 3, PUCK, PUCK_COLOUR), (0, 1, AGENT, AGENT_COLOUR)):
            away = np.hypot(self._x - truth[..., x, None, None], self._y - truth[..., y, None, None])
            cover = np.clip((radius - away) * self.image_size + 0.5, 0, 1)[..., None]
            picture = picture * (1 - cover) + colour * cover
        return np.round(picture).astype(np.uint8)


def advance(state: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Return f64 [N, 7] one control step after ``state`` [N, 7] under the agent's ``velocity`` [N, 2]."""
    agent, puck, speed, friction = state[:, :2].copy(), state[:, 2:4].copy(), state[:, 4:6].copy(), state[:, 6:]
    wanted = np.clip(velocity.astype(np.float64), -TOP_SPEED, TOP_SPEED)
    dt = 1 / (FPS * SUBSTEPS)
    for _ in range(SUBSTEPS):
        moved = np.clip(agent + wanted * dt, AGENT, 1 - AGENT)
        real = (moved - agent) / dt
        agent = moved
        puck, speed = puck + speed * dt, speed * np.exp(-friction * dt)
        puck, speed = _touch(agent, real, puck, speed)
        outside = (puck < PUCK) | (puck > 1 - PUCK)
        inward = np.where(puck < 0.5, np.abs(speed), -np.abs(speed)) * BOUNCE
        puck, speed = np.clip(puck, PUCK, 1 - PUCK), np.where(outside, inward, speed).clip(-FASTEST, FASTEST)
    return np.concatenate([agent, puck, speed, friction], 1)


def _touch(agent: np.ndarray, agent_speed: np.ndarray, puck: np.ndarray, speed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Push the puck out of the agent, which is infinitely heavy, and reflect its speed relative to it along the line of contact."""
    line = puck - agent
    away = np.linalg.norm(line, axis=1, keepdims=True)
    normal = np.where(away > 1e-9, line / np.maximum(away, 1e-9), [[1.0, 0.0]])
    touching = away < AGENT + PUCK
    closing = ((speed - agent_speed) * normal).sum(1, keepdims=True)
    speed = np.where(touching & (closing < 0), speed - (1 + BOUNCE) * closing * normal, speed)
    return np.where(touching, agent + (AGENT + PUCK) * normal, puck), speed


def _start(rng: np.random.Generator) -> np.ndarray:
    """Draw a start state f64 [7]: agent on the left, puck ahead of it at rest, friction."""
    agent = rng.uniform([0.15, 0.2], [0.35, 0.8])
    puck = rng.uniform([0.45, 0.2], [0.7, 0.8])
    friction = np.exp(rng.uniform(*np.log(FRICTION)))
    return np.array([*agent, *puck, 0.0, 0.0, friction])
