"""A scripted person at the simulated robot's controls, as a lerobot teleoperator: teleop.type=robowm_expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from lerobot.teleoperators import Teleoperator, TeleoperatorConfig
from lerobot.utils.errors import DeviceNotConnectedError

from real_robot.sim_robot.world import ACTION_NAMES, World, world_of
from robowm.types import Obs
from sim.experts.expert import ScriptedExpert
from sim.experts.waypoints import LEAD

TICK_S = 0.1  # the person looks and decides this often, as the tabletop's scripts do
CLEAR = 0.10  # metres above the table: free of everything
LOW = 0.035  # low enough to let go of something
OPEN = 0.15  # gripper below which nothing is held


@TeleoperatorConfig.register_subclass("robowm_expert")
@dataclass(kw_only=True)
class RobowmExpertConfig(TeleoperatorConfig):
    """Settings."""

    id: str | None = "expert"
    robot_id: str = "sim"  # id of the simulated robot
    noise: float = 0.005  # metres of smooth disturbance of what it commands
    sets_up_scenes: bool = (
        False  # True: once the goal has held for a second, it sets up the next start, as lerobot-record has no word for it
    )
    seed: int = 0  # of its noise


class RobowmExpert(Teleoperator):
    """Plays the task's script; while ``world.person`` is "recovery" it lets go and lifts the hand clear instead."""

    config_class = RobowmExpertConfig
    name = "robowm_expert"

    def __init__(self, config: RobowmExpertConfig) -> None:
        super().__init__(config)
        self.config, self._connected = config, False
        self._scene: tuple[int, int] | None = None

    @property
    def action_features(self) -> dict[str, type]:
        return dict.fromkeys(ACTION_NAMES, float)

    @property
    def feedback_features(self) -> dict[str, type]:
        return {}

    @property
    def is_connected(self) -> bool:
        return self._connected

    @property
    def is_calibrated(self) -> bool:
        return True

    def connect(self, calibrate: bool = True) -> None:
        """See Teleoperator."""
        self._connected = True

    def calibrate(self) -> None:
        """See Teleoperator: there is nothing to calibrate."""

    def configure(self) -> None:
        """See Teleoperator: there is nothing to configure."""

    def send_feedback(self, feedback: dict[str, Any]) -> None:
        """See Teleoperator: it feels nothing."""

    def disconnect(self) -> None:
        """See Teleoperator."""
        self._connected = False

    def get_action(self) -> dict[str, float]:
        """See Teleoperator."""
        world = world_of(self.config.robot_id)
        if world is None or not self._connected:
            raise DeviceNotConnectedError(f"{self}: no simulated robot with id {self.config.robot_id!r} is connected")
        now = world.clock.now()
        if self.config.sets_up_scenes and world.held_for() > 1.0:
            world.reset(world.seed + 1)
        if self._scene != (world.seed, world.resets):
            self._start(world, now)
        if now >= self._next:
            self._next = max(self._next + TICK_S, now)
            self._target = self._recover(world) if world.person == "recovery" else self._follow(world)
        return {name: float(value) for name, value in zip(ACTION_NAMES, self._target, strict=True)}

    def _start(self, world: World, now: float) -> None:
        self._scene, self._next = (world.seed, world.resets), now
        self._script = ScriptedExpert(world.task.name, noise=self.config.noise)
        self._memory = self._script.start(1)
        self._rng = np.random.default_rng([self.config.seed, world.seed])

    def _follow(self, world: World) -> np.ndarray:
        state, truth = world.truth()
        obs = Obs({}, state[None, None], truth[None, None], (world.task.sentence,))
        actions, self._memory = self._script.act(obs, self._memory, [self._rng])
        return actions[0, 0].astype(float)

    def _recover(self, world: World) -> np.ndarray:
        """Go down and let go of what is held, then lift the hand clear; the script begins anew afterwards."""
        self._memory = self._script.start(1)
        state = world.truth()[0].astype(float)
        holds = state[4] > OPEN and not self._script.closed_at_start
        height = LOW - 0.01 if holds and state[2] > LOW else CLEAR if not holds else state[2]
        target = state.copy()
        target[2] += np.clip(height - state[2], -LEAD[2], LEAD[2])
        target[4] = 1.0 if self._script.closed_at_start or (holds and state[2] > LOW) else 0.0
        return target


def recovered(state: np.ndarray, closed_at_start: bool) -> bool:
    """Tell whether the hand with ``state`` [5] is clear of everything."""
    return bool(state[2] > CLEAR - 0.012 and (closed_at_start or state[4] < OPEN))
