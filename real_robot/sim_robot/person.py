"""A scripted person who watches the simulated robot: takes over where the policy gets nowhere, corrects, judges, sets up scenes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from real_robot.labels import Event, Mode
from real_robot.sim_robot.expert import recovered
from robowm.errors import UserError
from sim.experts.expert import ScriptedExpert

if TYPE_CHECKING:
    from real_robot.arm import Arm
    from real_robot.sim_robot.world import World

NEAR = 0.005  # metres by which the distance still to go must fall to count as progress
RECOVERY_S = 0.4  # seconds that a recovery takes at least


class ScriptedOperator:
    """Satisfies ``real_robot.operator.Operator`` for a robot of type robowm_sim.

    Args:
        guarded: share of episodes in which it takes over, drawn by start seed; in the others the policy is left alone.
        patience_s: seconds without progress after which it takes over.
        rewinds: share of take-overs that begin by driving back along the path.
        settle_s: seconds that the goal must hold for an episode to end as a success.
        holds_key: it holds the dead-man key.
    """

    judge = "simulator"

    def __init__(
        self,
        guarded: float = 0.5,
        patience_s: float = 1.5,
        rewinds: float = 0.0,
        settle_s: float = 0.5,
        holds_key: bool = True,
    ) -> None:
        for name, share in (("guarded", guarded), ("rewinds", rewinds)):
            if not 0 <= share <= 1:
                raise UserError(f"operator.{name}={share}; it is a share, 0 to 1")
        self._guarded, self._patience, self._rewinds, self._settle, self._holds = guarded, patience_s, rewinds, settle_s, holds_key

    def open(self, arm: Arm) -> None:
        """See Operator."""
        world: World | None = getattr(arm.robot, "world", None)
        if world is None:
            raise UserError(f"operator=scripted watches simulated robots alone, this one is {arm.robot.name!r}; use operator=keyboard")
        self._world = world
        self._closed = ScriptedExpert(world.task.name).closed_at_start
        self._said: list[Event] = []

    def prepare(self, seed: int) -> None:
        """See Operator."""
        self._world.reset(seed)
        draw = np.random.default_rng([9, seed])
        self._watches, self._drives_back = draw.random() < self._guarded, draw.random() < self._rewinds
        self._mode, self._best, self._best_at = None, np.inf, 0.0
        self._succeeded = False
        self._said = [Event.READY]

    def poll(self, mode: Mode, step: int) -> list[Event]:
        """See Operator."""
        said, self._said = self._said, []
        held = self._world.held_for()
        self._succeeded |= held > 0
        if held >= self._settle:
            return [*said, Event.QUALITY_5 if mode in (Mode.DEMO, Mode.POLICY) else Event.QUALITY_3, Event.SUCCESS]
        state, truth = self._world.truth()
        now = self._world.clock.now()
        if mode != self._mode or step == 0:  # before the first step the policy may think as long as it likes
            self._mode, self._best, self._best_at, self._since = mode, np.inf, now, now
            self._world.person = "recovery" if mode == Mode.RECOVERY else ""
        if mode == Mode.POLICY and self._watches and held == 0 and self._stuck(state, truth, now):
            said.append(Event.REWIND if self._drives_back else Event.TAKE_OVER)
        if mode == Mode.RECOVERY and now - self._since > RECOVERY_S and recovered(state, self._closed):
            said.append(Event.CORRECT)
        return said

    def time_is_up(self) -> list[Event]:
        """See Operator."""
        return [Event.SUCCESS if self._world.goal_holds() else Event.FAILURE]

    def holding(self) -> bool:
        """See Operator."""
        return self._holds

    def let_go(self, why: str) -> None:
        """See Operator: nothing can fall."""

    def close(self) -> None:
        """See Operator."""

    def _stuck(self, state: np.ndarray, truth: np.ndarray, now: float) -> bool:
        """Tell whether nothing came nearer for too long: the hand to the object, or (thrice as important) that to its target."""
        left = float(np.linalg.norm(truth[:3] - state[:3]) + 3 * np.linalg.norm(truth[:2] - truth[7:9]))
        if left < self._best - NEAR:
            self._best, self._best_at = left, now
        return now - self._best_at > self._patience
