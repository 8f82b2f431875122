"""One robosuite environment as a machine that plays any episode from a saved state. D numbers of a state.

What an episode's future depends on beside MuJoCo's integration state: how far each gripper's command has been moved (it goes by 0.2 a
control step), and the joint angles that each arm's controller pulls its null space towards (those at the reset, which are random). The
controller's goal is not among them: every action sets it anew before it is used. What a reset writes into the model is the same each time.

Observations are a function of the state: they are read from positions brought up to it. robosuite's own step() shows what held 48 ms
before the step's end, and relative poses that are one step older still. For the same reason an episode's first 2 ms use the mass matrix of
its start, where robosuite uses one from before it placed the fingers; apart from that the physics is robosuite's, bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from robowm.errors import UserError
from sim.robosuite.rotation import from_six
from sim.robosuite.tasks import TASKS, robosuite

STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
FPS = 20  # control steps per second, as in robomimic's data sets
FAR = 100.0  # metres or radians: no joint gets there unless the physics became unstable
KEYS = ("eef_pos", "eef_quat", "gripper_qpos")  # of each robot's proprioception: robomimic's low-dimensional keys
WIDTHS = {"absolute": 10, "delta": 7}  # numbers of an action of one arm


class Simulator:
    """See sim.turns.Simulator. ``action_kind`` is "absolute" or "delta", see RobosuiteEnv."""

    def __init__(self, task: str, action_kind: str):
        self.sentence, self._task, self._delta = TASKS[task].sentence, task, action_kind == "delta"
        with _random_numbers(0):  # robosuite draws the size of Lift's cube when it builds the model
            self._env = _make(task, action_kind)
        self.model, self.data = self._env.sim.model._model, self._env.sim.data._data
        self.model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # never restart an episode behind our back
        self._substeps = int(self._env.control_timestep / self._env.model_timestep)
        self._names = [f"robot{arm}_{key}" for arm in range(TASKS[task].arms) for key in KEYS]
        observables = self._env._observables
        self._truth = [name for name, found in observables.items() if found.modality == "object" and found.is_active()]
        hidden = [name for name, found in observables.items() if found.modality == "object" and found.is_enabled()]
        self._sensors = {name: observables[name]._sensor for name in [*self._names, *hidden]}
        self.goal_holds = False
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start the episode of ``seed``: where robosuite puts the robot and the objects after ``numpy.random.seed(seed)``."""
        with _random_numbers(seed):
            self._env.reset()
        self._forget()
        self.refresh()

    def step(self, action: np.ndarray) -> None:
        """Apply ``action`` [A] for one control step."""
        command = self._command(action.astype(float))
        for k in range(self._substeps):
            mujoco.mj_step1(self.model, self.data)
            self._env._pre_action(command, k == 0)
            mujoco.mj_step2(self.model, self.data)
        if not (np.abs(self.data.qpos) < FAR).all():
            raise UserError(f"robosuite/{self._task}: the physics became unstable; leave this start seed out")
        self.refresh()

    def observe(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the proprioception [9 per arm] and robomimic's "object" [E] of the state that is loaded and refreshed."""
        seen: dict[str, np.ndarray] = {}
        for _ in range(2):  # relative poses are computed from what other sensors left in ``seen``, some of them later ones
            for name, sensor in self._sensors.items():
                seen[name] = np.atleast_1d(np.array(sensor(seen), float))
        return np.concatenate([seen[name] for name in self._names]), np.concatenate([seen[name] for name in self._truth])

    def save(self) -> np.ndarray:
        """Return f64 [D], all that the future depends on."""
        engine = np.empty(mujoco.mj_stateSize(self.model, STATE))
        mujoco.mj_getState(self.model, self.data, engine, STATE)
        kept = [part for robot in self._env.robots for part in (self._fingers(robot), robot.part_controllers["right"].initial_joint)]
        return np.concatenate([engine, *kept])

    def load(self, state: np.ndarray) -> None:
        """Go to a saved state f64 [D]. Steps may follow at once; observations and pictures need ``refresh``."""
        stop = mujoco.mj_stateSize(self.model, STATE)
        mujoco.mj_setState(self.model, self.data, state[:stop], STATE)
        for robot in self._env.robots:
            fingers, arm = self._fingers(robot), robot.part_controllers["right"]
            robot.gripper["right"].current_action = state[stop : (stop := stop + len(fingers))].copy()
            arm.initial_joint = state[stop : (stop := stop + len(arm.initial_joint))].copy()
        self._forget()

    def refresh(self) -> None:
        """Bring poses, contacts, cameras and ``goal_holds`` up to the state, without touching anything that the next step depends on."""
        mujoco.mj_fwdPosition(self.model, self.data)
        self.goal_holds = bool(self._env._check_success())

    def _forget(self) -> None:
        """Make the controllers read joints and Jacobians anew: otherwise the first step uses those of the last reset."""
        for robot in self._env.robots:
            for controller in robot.part_controllers.values():
                controller.new_update = True

    @staticmethod
    def _fingers(robot) -> np.ndarray:
        """Return the command [2] of a robot's two fingers; after a reset robosuite keeps one zero for both."""
        return np.broadcast_to(robot.gripper["right"].current_action, 2)

    def _command(self, action: np.ndarray) -> np.ndarray:
        """Return what robosuite's controllers are told: 7 numbers per arm, a pose's rotation as a vector."""
        if self._delta:
            return action.clip(-1, 1)
        arms = action.reshape(-1, WIDTHS["absolute"])
        turn = Rotation.from_matrix(from_six(arms[:, 3:9])).as_rotvec()
        return np.concatenate([arms[:, :3], turn, arms[:, 9:].clip(-1, 1)], 1).ravel()


def controller_config(action_kind: str) -> dict:
    """Return robosuite's configuration of a Panda's operational-space controller in the world's frame."""
    config = copy.deepcopy(robosuite("controllers").load_composite_controller_config(robot="Panda"))
    config["body_parts"]["right"].update(input_type=action_kind, input_ref_frame="world")
    return config


def _make(task: str, action_kind: str):
    robots = ["Panda"] * TASKS[task].arms
    return robosuite().make(
        TASKS[task].env,
        robots=robots,
        controller_configs=[controller_config(action_kind) for _ in robots],
        control_freq=FPS,
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
        renderer="mujoco",
        hard_reset=False,  # one model for all episodes, so that one renderer can draw them
        ignore_done=True,  # time limits are the caller's
    )


@contextmanager
def _random_numbers(seed: int) -> Iterator[None]:
    """Give robosuite, which draws from numpy's global generator, the numbers of ``seed``; the caller's are as before afterwards."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)
