"""A keyboard as a lerobot teleoperator: teleop.type=robowm_keyboard. Any terminal will do; every press moves a target a little.

Each action has a pair of keys, in the order of ``names``: a d, s w, f r, q e, j l, k i, and o p for the last, which is usually the gripper.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from lerobot.teleoperators import Teleoperator, TeleoperatorConfig
from lerobot.utils.errors import DeviceNotConnectedError

from real_robot.keys import Keys, terminal
from real_robot.sim_robot.world import ACTION_NAMES
from sim.tabletop.control import WORKSPACE

PAIRS = ("ad", "sw", "fr", "qe", "jl", "ki")  # lower and raise
LAST_PAIR = "op"


@TeleoperatorConfig.register_subclass("robowm_keyboard")
@dataclass(kw_only=True)
class RobowmKeyboardConfig(TeleoperatorConfig):
    """Settings; the defaults are those of the simulated robot."""

    id: str | None = "keyboard"
    names: list[str] = field(default_factory=lambda: list(ACTION_NAMES))  # the robot's actions
    steps: list[float] = field(default_factory=lambda: [0.008, 0.008, 0.008, 0.08, 0.25])  # how far a press moves each
    low: list[float] = field(default_factory=lambda: WORKSPACE[:, 0].tolist())
    high: list[float] = field(default_factory=lambda: WORKSPACE[:, 1].tolist())


class RobowmKeyboard(Teleoperator):
    """Position targets that keys move. ``send_feedback`` (the robot's pose) says where they begin; until then there is no action."""

    config_class = RobowmKeyboardConfig
    name = "robowm_keyboard"

    def __init__(self, config: RobowmKeyboardConfig, keys: Keys | None = None) -> None:
        super().__init__(config)
        sizes = {len(config.names), len(config.steps), len(config.low), len(config.high)}
        if len(sizes) > 1 or not 1 <= len(config.names) <= len(PAIRS) + 1:
            raise ValueError(
                f"names, steps, low and high must be as long as each other, 1 to {len(PAIRS) + 1}; found lengths {sorted(sizes)}"
            )
        self.config, self._keys = config, keys
        self._connected, self._lock = False, threading.Lock()
        self._target: dict[str, float] = {}
        pairs = [*PAIRS[: len(config.names) - 1], LAST_PAIR]
        self._moves = {key: (i, sign * config.steps[i]) for i, pair in enumerate(pairs) for key, sign in zip(pair, (-1, 1), strict=True)}

    @property
    def action_features(self) -> dict[str, type]:
        return dict.fromkeys(self.config.names, float)

    @property
    def feedback_features(self) -> dict[str, type]:
        return dict.fromkeys(self.config.names, float)

    @property
    def is_connected(self) -> bool:
        return self._connected

    @property
    def is_calibrated(self) -> bool:
        return True

    def connect(self, calibrate: bool = True) -> None:
        """See Teleoperator: begin to listen to the terminal."""
        (self._keys or terminal()).listen(self._heard)
        moves = [f"{key} {'-' if step < 0 else '+'}{self.config.names[i]}" for key, (i, step) in self._moves.items()]
        print(f"moves\n  {', '.join(moves)}", file=sys.stderr, flush=True)
        self._connected = True

    def calibrate(self) -> None:
        """See Teleoperator: there is nothing to calibrate."""

    def configure(self) -> None:
        """See Teleoperator: there is nothing to configure."""

    def send_feedback(self, feedback: dict[str, Any]) -> None:
        """Take the robot's pose as the target."""
        with self._lock:
            self._target = {name: float(feedback[name]) for name in self.config.names}

    def get_action(self) -> dict[str, float]:
        """See Teleoperator."""
        if not self._connected:
            raise DeviceNotConnectedError(f"{self} is not connected")
        with self._lock:
            if not self._target:
                raise RuntimeError("the keyboard does not know where the robot is: send_feedback comes before get_action")
            return dict(self._target)

    def disconnect(self) -> None:
        """See Teleoperator."""
        self._connected = False

    def _heard(self, key: str) -> None:
        move = self._moves.get(key)
        if move is None or not self._connected:
            return
        with self._lock:
            if self._target:
                i, step = move
                name = self.config.names[i]
                self._target[name] = min(max(self._target[name] + step, self.config.low[i]), self.config.high[i])
