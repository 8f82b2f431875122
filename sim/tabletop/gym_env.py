"""One tabletop episode at a time as a ``gymnasium.Env``, with observations named as LeRobot's simulators name them.

Importing this module registers robowm/TabletopPush-v0, robowm/TabletopPickPlace-v0 and robowm/TabletopInsert-v0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from robowm.types import Obs
from sim.tabletop.control import FAR, FPS, MAX_MOVE, WORKSPACE
from sim.tabletop.env import CAMERAS, TabletopEnv
from sim.tabletop.task import ENVIRONMENT_STATE_NAMES, STATE_NAMES
from sim.tabletop.tasks import load_task, task_names

MAX_STEPS = 80


class TabletopGymEnv(gymnasium.Env):
    """Observations: ``pixels`` {camera: uint8 [h, w, 3]} (absent without cameras), ``agent_pos`` f32 [5], ``environment_state`` f32 [15].

    Actions f32 [5], see TabletopEnv. The reward is 1.0 when the goal holds after the step; ``info["is_success"]`` says the same.
    ``terminated`` is true at success, so that an episode ends there. The start state is a function of ``reset(seed=...)``, or of a
    number drawn from the environment's generator when no seed is given. Arguments as in TabletopEnv.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": int(FPS)}  # noqa: RUF012  gymnasium wants a plain class attribute

    def __init__(
        self,
        task: str = "pick_place",
        image_size: int = 96,
        cameras: Sequence[str] = CAMERAS,
        action_kind: str = "absolute",
        start_range: float = 1.0,
        render_mode: str | None = "rgb_array",
    ):
        self._env = TabletopEnv(task, 1, image_size, 1, cameras, action_kind, start_range)
        self._picture: TabletopEnv | None = None  # draws for render() when the observations hold no external view
        self.render_mode, self.task, self.task_description = render_mode, task, load_task(task).sentence
        low, high = WORKSPACE.T.astype(np.float32)
        if action_kind == "delta":
            low, high = np.append(-MAX_MOVE[:4], 0).astype(np.float32), np.append(MAX_MOVE[:4], 1).astype(np.float32)
        self.action_space = spaces.Box(low, high, dtype=np.float32)
        parts: dict[str, spaces.Space] = {
            "agent_pos": spaces.Box(-FAR, FAR, (len(STATE_NAMES),), np.float32),
            "environment_state": spaces.Box(-FAR, FAR, (len(ENVIRONMENT_STATE_NAMES),), np.float32),
        }
        if cameras:
            picture = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
            parts["pixels"] = spaces.Dict(dict.fromkeys(cameras, picture))
        self.observation_space = spaces.Dict(parts)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        super().reset(seed=seed)
        start = seed if seed is not None else int(self.np_random.integers(2**31))
        obs = self._env.reset([start])
        return self._observation(obs), {"is_success": bool(self._env.goal_holds()[0]), "seed": start, "task": self.task_description}

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict[str, Any]]:
        """Take one control step."""
        steps = self._env.step(np.asarray(action, np.float32)[None, None], np.ones(1, bool))
        success = bool(steps.success[0, 0])
        return (
            self._observation(steps.obs),
            float(steps.reward[0, 0]),
            success,
            False,
            {"is_success": success, "task": self.task_description},
        )

    def render(self) -> np.ndarray | None:
        """Return the external view uint8 [h, w, 3]."""
        if self.render_mode is None:
            return None
        if self._picture is None:
            self._picture = TabletopEnv(self.task, 1, self._env.image_size, 1, ("external",))
        return self._picture.set_state(self._env.get_state()).frames["external"][0, -1]

    def close(self) -> None:
        """Free the renderers."""
        self._env.close()
        if self._picture is not None:
            self._picture.close()

    def _observation(self, obs: Obs) -> dict:
        out: dict[str, Any] = {"agent_pos": obs.state[0, -1], "environment_state": obs.environment_state[0, -1]}
        if obs.frames:
            out["pixels"] = {name: frames[0, -1] for name, frames in obs.frames.items()}
        return out


def _register() -> None:
    for name in task_names():
        title = "".join(word.capitalize() for word in name.split("_"))
        gymnasium.register(
            f"robowm/Tabletop{title}-v0", entry_point=f"{__name__}:TabletopGymEnv", kwargs={"task": name}, max_episode_steps=MAX_STEPS
        )


_register()
