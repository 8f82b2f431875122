"""N copies of one tabletop scene in this process: physics, observations, pictures and exact rewinding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from robowm.errors import UserError
from robowm.types import MASK, MASK_CHANNELS, Obs, Steps
from sim.tabletop.control import FAR, FPS, absolute, next_set_point
from sim.tabletop.hidden import HiddenModel, draw, hidden_names
from sim.tabletop.scene import FINGER_JOINTS, FINGER_SQUEEZE, FINGER_TRAVEL, HAND_JOINTS, TIMESTEP, build_model, geom_labels
from sim.tabletop.task import ACTION_NAMES, ENVIRONMENT_STATE_NAMES, STATE_NAMES, Start, Task
from sim.tabletop.tasks import load_task

if TYPE_CHECKING:
    from sim.render import Renderer

SUBSTEPS = round(1 / FPS / TIMESTEP)
FULL_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # positions, velocities, set-points, mocap, warm start: all that a step depends on
MASK_COLOURS = np.eye(1 + len(MASK_CHANNELS), 3, -1, dtype=np.uint8) * 255  # [4, 3] of labels 0 (anything else), 1, 2, 3


class Batch:
    """At most ``n`` episodes side by side, over one model or, where objects differ unseen, over one each.

    All arrays it returns have len(seeds) rows. States are the engine's numbers, then the hidden ones.
    """

    def __init__(
        self,
        task: Task,
        n: int,
        image_size: int,
        cameras: Sequence[str],
        delta: bool,
        start_range: float,
        hidden: float,
        masks: bool,
    ):
        self._task, self._size, self._cameras, self._delta, self._range = task, image_size, tuple(cameras), delta, start_range
        self._shown = camera_names(cameras, masks)
        self._model = build_model(task.bodies)
        self._model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # never restart an episode behind our back
        self._amount, self._truth_names = hidden, ENVIRONMENT_STATE_NAMES + hidden_names(hidden)
        self._differing = [HiddenModel(self._model) for _ in range(n)] if hidden > 0 else []
        self._models = [each.model for each in self._differing] or [self._model] * n
        self._hidden = np.zeros((n, len(hidden_names(hidden))))  # f64 [n, 3 or 0]
        self._datas = [mujoco.MjData(model) for model in self._models]
        self._positions = [data.qpos for data in self._datas]  # views into the engine's memory
        self._set_points = [data.ctrl for data in self._datas]
        self._mocaps = [(data.mocap_pos, data.mocap_quat) for data in self._datas]
        self._seeds = np.zeros(0, int)
        self._renderer: Renderer | None = None
        self._last: np.ndarray | None = None  # uint8 [N, V, h, w, 3], what each environment showed last, masks behind pictures
        model = self._model
        self._hand = np.array([model.joint(name).qposadr[0] for name in HAND_JOINTS])
        self._fingers = np.array([model.joint(name).qposadr[0] for name in FINGER_JOINTS])
        self._object = int(model.joint("object").qposadr[0])
        self._labels = geom_labels(model) if masks else None

    def reset(self, seeds: Sequence[int]) -> Obs:
        """Start one episode per seed."""
        self._seeds = np.array(seeds, int)
        self._hide([draw(one.nominal, seed, self._amount) for one, seed in zip(self._differing, seeds, strict=False)])
        for data, seed in zip(self._datas, seeds, strict=False):
            self._place(data, self._task.sample(np.random.default_rng([2, int(seed)]), self._range))
        return self._observe_now()

    def step(self, actions: np.ndarray, active: np.ndarray, render_rows: int | None) -> Steps:
        """Apply actions [N, H, A] where ``active``; frames hold the last ``render_rows`` rows (None: all)."""
        n, horizon = actions.shape[:2]
        rows = horizon if render_rows is None else min(render_rows, horizon)
        state = np.empty((n, horizon, len(STATE_NAMES)), np.float32)
        truth = np.empty((n, horizon, len(self._truth_names)), np.float32)
        pictures = [] if self._cameras else None
        moving = np.flatnonzero(active)
        for k in range(horizon):
            if len(moving):
                self._advance(moving, actions[moving, k])
            state[:, k], truth[:, k] = self._measure()
            if pictures is not None and k >= horizon - rows:
                pictures.append(self._look(active))
        success = self._task.holds(state, truth)
        valid = np.broadcast_to(active[:, None], success.shape).copy()
        obs = self._obs(None if pictures is None else np.stack(pictures, 1), state, truth)
        return Steps(obs, success.astype(np.float32), success, np.zeros_like(success), valid)

    def goal_holds(self) -> np.ndarray:
        """Return bool [N]."""
        return self._task.holds(*self._measure())

    def get_state(self) -> np.ndarray:
        """Return f64 [N, D], all that the future depends on."""
        n = len(self._seeds)
        out = np.empty((n, mujoco.mj_stateSize(self._model, FULL_STATE)))
        for row, data in zip(out, self._datas, strict=False):
            mujoco.mj_getState(self._model, data, row, FULL_STATE)
        return np.concatenate([out, self._hidden[:n]], 1)

    def set_state(self, states: np.ndarray) -> Obs:
        """Restore f64 [N, D] and return the observation there."""
        self._seeds = np.full(len(states), -1)
        engine, hidden = np.split(states, [mujoco.mj_stateSize(self._model, FULL_STATE)], 1)
        self._hide(hidden)
        for state, data in zip(engine, self._datas, strict=False):
            mujoco.mj_resetData(self._model, data)
            mujoco.mj_setState(self._model, data, state, FULL_STATE)
            self._refresh(data)
        return self._observe_now()

    def state_size(self) -> int:
        """Return D."""
        return mujoco.mj_stateSize(self._model, FULL_STATE) + self._hidden.shape[1]

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _hide(self, numbers: Sequence[np.ndarray]) -> None:
        """Give the first environments' objects their hidden ``numbers``, f64 [3] each; does nothing where none are drawn."""
        for i, (differing, values) in enumerate(zip(self._differing, numbers, strict=False)):
            differing.set(values)
            self._hidden[i] = values

    def _place(self, data: mujoco.MjData, start: Start) -> None:
        mujoco.mj_resetData(self._model, data)
        data.qpos[self._hand] = start.hand[:4]
        data.qpos[self._fingers] = start.hand[4] * FINGER_TRAVEL
        x, y, z, yaw = start.object
        data.qpos[self._object : self._object + 7] = [x, y, z, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
        x, y, yaw = start.target
        data.mocap_pos[0], data.mocap_quat[0] = [x, y, 0], [np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
        data.ctrl[:] = [*start.hand[:4], *[start.hand[4] * FINGER_SQUEEZE] * 2]
        self._refresh(data)

    def _advance(self, rows: np.ndarray, actions: np.ndarray) -> None:
        """One control step of environments ``rows`` [n]: move set-points towards ``actions`` [n, 5], within speed and workspace."""
        before = np.array([self._set_points[i][:5] for i in rows])
        before[:, 4] /= FINGER_SQUEEZE
        target = actions.astype(float)
        after = next_set_point(before, absolute(before, target) if self._delta else target)
        after[:, 4] *= FINGER_SQUEEZE
        for i, set_point in zip(rows, np.concatenate([after, after[:, 4:]], 1), strict=True):
            data = self._datas[i]
            self._set_points[i][:] = set_point
            mujoco.mj_step(self._models[i], data, SUBSTEPS)
            self._refresh(data)
            if not (np.abs(self._positions[i]) < FAR).all():
                raise UserError(f"{self._task.name}: the physics of start seed {self._seeds[i]} became unstable; please report the seed")

    def _refresh(self, data: mujoco.MjData) -> None:
        """Bring poses and cameras up to the positions without touching anything that the next step depends on."""
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_camlight(self._model, data)

    def _measure(self) -> tuple[np.ndarray, np.ndarray]:
        """Return state f32 [N, 5] and environment state f32 [N, 15], or 18 with the hidden numbers."""
        n = len(self._seeds)
        qpos = np.array(self._positions[:n])
        gripper = qpos[:, self._fingers].mean(1, keepdims=True) / FINGER_TRAVEL
        state = np.concatenate([qpos[:, self._hand], gripper], 1)
        place = np.array([position[0, :2] for position, _ in self._mocaps[:n]])
        quat = np.array([quat[0] for _, quat in self._mocaps[:n]])
        yaw = 2 * np.arctan2(quat[:, 3:], quat[:, :1])
        thing = qpos[:, self._object : self._object + 7]
        truth = np.concatenate([thing, place, yaw, thing[:, :3] - state[:, :3], place - thing[:, :2], self._hidden[:n]], 1)
        return state.astype(np.float32), truth.astype(np.float32)

    def _look(self, active: np.ndarray) -> np.ndarray:
        """Return uint8 [N, V, h, w, 3]; only active environments are drawn, the others show what they showed last."""
        if self._renderer is None:
            from sim.render import Renderer

            self._renderer = Renderer(self._model, self._size, self._cameras)
        drawn = np.flatnonzero(active)
        self._last = self._last.copy()
        datas = [self._datas[i] for i in drawn]
        self._last[drawn, : len(self._cameras)] = self._renderer.render(datas)
        if self._labels is not None:
            self._last[drawn, len(self._cameras) :] = MASK_COLOURS[self._renderer.labels(datas, self._labels)]
        return self._last

    def _observe_now(self) -> Obs:
        state, truth = self._measure()
        pictures = None
        if self._cameras:
            shape = (len(self._seeds), len(self._shown), self._size, self._size, 3)
            self._last = np.empty(shape, np.uint8)
            pictures = self._look(np.ones(len(self._seeds), bool))[:, None]
        return self._obs(pictures, state[:, None], truth[:, None])

    def _obs(self, pictures: np.ndarray | None, state: np.ndarray, truth: np.ndarray) -> Obs:
        frames = {} if pictures is None else {name: pictures[:, :, v] for v, name in enumerate(self._shown)}
        return Obs(frames, state, truth, (self._task.sentence,) * len(state))


def build(task: str, **settings) -> Batch:
    """Return a Batch of the task called ``task``: what a worker process starts from."""
    return Batch(load_task(task), **settings)


def camera_names(cameras: Sequence[str], masks: bool) -> tuple[str, ...]:
    """Return the names of what is drawn, in order: pictures, then the mask of each."""
    return (*cameras, *(name + MASK for name in cameras if masks))


def spec(cameras: Sequence[str], image_size: int, delta: bool, hidden: float, masks: bool) -> dict:
    """Return what a store needs to know about the episodes recorded here."""
    return {
        "cameras": dict.fromkeys(camera_names(cameras, masks), (image_size, image_size)),
        "state_names": list(STATE_NAMES),
        "action_names": list(ACTION_NAMES),
        "environment_state_names": [*ENVIRONMENT_STATE_NAMES, *hidden_names(hidden)],
        "fps": FPS,
        "action_kind": "delta" if delta else "absolute",
    }
