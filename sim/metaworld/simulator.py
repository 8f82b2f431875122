"""One Meta-World environment as a machine that plays any episode from a saved state. D numbers of a state.

What an episode's future depends on lies in three places: MuJoCo's integration state, positions that a reset writes into the model (a
drawer's, a goal's) and numbers that the task keeps in attributes (where its goal is, the last observation). ``save`` packs all of it into
one row, so episodes are rows: they share one model and one renderer, rewinding is loading, and none can influence another.
"""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np

from robowm.errors import UserError
from sim.metaworld.tasks import OBSERVATION, SENTENCES, metaworld

STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
PROPRIOCEPTION = slice(0, 4)  # of Meta-World's observation: hand x, y, z, opening
FAR = 100.0  # metres or radians: no joint gets there unless the physics became unstable
EXTERNAL, EXTERNAL_PLACE = "corner2", (0.75, 0.075, 0.7)  # closer than Meta-World's own, as the data sets on the hub have it
HALF_TURN = np.array([0.0, 0.0, 0.0, 1.0])  # of a camera about its line of sight
WORLD = ("body_pos", "site_pos")  # what resets write in the model


class Simulator:
    """See sim.turns.Simulator. The task is given by Meta-World's name ("drawer-open"); ``repeat`` steps of 1/80 s make one control step."""

    def __init__(self, task: str, repeat: int):
        self.sentence, self._repeat = SENTENCES[task], repeat
        self._env = env = metaworld("env_dict").ENV_CLS_MAP[f"{task}-v3"]()
        env._partially_observable = False  # the goal is part of the observation
        del env.sawyer_observation_space  # cached for a hidden goal
        env._set_task_called, env._freeze_rand_vec, env.seeded_rand_vec = True, False, True  # start states from the seed
        env.max_path_length = 10**9  # time limits are the caller's
        self.model, self.data = env.model, env.data
        self.model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # never restart an episode behind our back
        camera = self.model.camera(EXTERNAL)
        upright = np.empty(4)
        mujoco.mju_mulQuat(upright, camera.quat, HALF_TURN)  # Meta-World mounts it upside down
        camera.pos, camera.quat = EXTERNAL_PLACE, upright
        self.goal_holds = False  # whether the goal holds in the state that the episode is in
        self._kept: dict[str, np.ndarray] = {}  # attributes that belong to a state, and how they look
        self._fresh_world = [getattr(self.model, name).copy() for name in WORLD]
        self._fresh = copy.deepcopy({name: value for name, value in vars(env).items() if _is_plain(value)})
        self.reset(0)
        env.step(np.zeros(4, np.float32))
        self._kept = {name: np.array(value) for name, value in sorted(vars(env).items()) if _is_number(value)}

    def reset(self, seed: int) -> None:
        """Start the episode of ``seed`` as a new environment would."""
        env = self._env
        for name, value in zip(WORLD, self._fresh_world, strict=True):
            getattr(self.model, name)[:] = value
        vars(env).update(copy.deepcopy(self._fresh))
        mujoco.mj_resetData(self.model, self.data)
        env.seed(seed)
        env.reset()
        self.refresh()  # Meta-World shows poses from before it placed the object
        now = env._prev_obs = env._get_curr_obs_combined_no_goal()
        space = env.sawyer_observation_space
        env._last_stable_obs = np.hstack([now, now, env._get_pos_goal()]).clip(space.low, space.high)
        start = self.save()
        self.goal_holds = bool(env.evaluate_state(self.observe()[1][:OBSERVATION], np.zeros(4, np.float32))[1]["success"])
        self.load(np.append(start[:-1], self.goal_holds))  # judging writes attributes

    def step(self, action: np.ndarray) -> None:
        """Apply ``action`` [4] for one control step."""
        action = action.clip(-1, 1)
        for _ in range(self._repeat):
            _, _, _, _, info = self._env.step(action)
        if not (np.abs(self.data.qpos) < FAR).all():
            raise UserError(f"{self._env.task_name}: the physics became unstable; leave this start seed out")
        self.goal_holds = bool(info["success"])

    def observe(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the hand f64 [4] and f64 [45]: Meta-World's observation (18 numbers now, the same one simulation step earlier, the goal),
        then the way from hand to first object and from there to the goal."""
        seen = self._env._last_stable_obs
        hand, thing, goal = seen[:3], seen[4:7], seen[36:39]
        return seen[PROPRIOCEPTION], np.concatenate([seen, thing - hand, goal - thing])

    def save(self) -> np.ndarray:
        """Return f64 [D], all that the future depends on. None is kept as NaN."""
        engine = np.empty(mujoco.mj_stateSize(self.model, STATE))
        mujoco.mj_getState(self.model, self.data, engine, STATE)
        world = [getattr(self.model, name).ravel() for name in WORLD]
        attributes = vars(self._env)
        numbers = [
            np.full(like.size, np.nan) if (value := attributes[name]) is None else np.ravel(value) for name, like in self._kept.items()
        ]
        return np.concatenate([engine, *world, *numbers, [self.goal_holds]])

    def load(self, state: np.ndarray) -> None:
        """Go to a saved state f64 [D]. Steps may follow at once; poses and pictures need ``refresh``."""
        stop = mujoco.mj_stateSize(self.model, STATE)
        mujoco.mj_setState(self.model, self.data, state[:stop], STATE)
        for name in WORLD:
            values = getattr(self.model, name)
            values[:] = state[stop : (stop := stop + values.size)].reshape(values.shape)
        attributes = vars(self._env)
        for name, like in self._kept.items():
            part = state[stop : (stop := stop + like.size)]
            attributes[name] = None if np.isnan(part).all() else _restored(part, like)
        self.goal_holds = bool(state[-1])

    def refresh(self) -> None:
        """Bring poses and cameras up to a loaded state, without touching anything that the next step depends on."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)


def _restored(part: np.ndarray, like: np.ndarray) -> Any:
    value = part.astype(like.dtype).reshape(like.shape)
    return value if like.ndim else value.item()


def _is_number(value: Any) -> bool:
    """True for numbers and arrays of the task's own, not for views into the engine's memory, which follow it by themselves."""
    if isinstance(value, np.ndarray):
        return value.size > 0 and value.dtype.kind in "fiub" and not _is_engines(value)
    return isinstance(value, bool | int | float | np.number)


def _is_plain(value: Any) -> bool:
    return value is None or _is_number(value) or isinstance(value, list | dict)


def _is_engines(array: np.ndarray) -> bool:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is not None
