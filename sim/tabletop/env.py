"""TabletopEnv: N tabletop episodes side by side, in this process or spread over worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from robowm.errors import UserError
from robowm.types import Obs, Steps
from sim.checks import check_actions, check_cameras, check_seeds, check_sizes, check_states
from sim.tabletop.batch import Batch, spec
from sim.tabletop.control import FPS
from sim.tabletop.scene import MAX_SIZE
from sim.tabletop.task import ACTION_NAMES
from sim.tabletop.tasks import load_task
from sim.workers import Pool

CAMERAS = ("external", "wrist")
MIN_SIZE = 16


class TabletopEnv:
    """Satisfies ``robowm.protocols.Env`` and ``Rewindable``.

    Actions f32 [N, H, 5]: targets x, y, z (metres), yaw (radians) of the pinch point and gripper (0 = open .. 1 = closed), clipped to the
    workspace; the set-point follows at most 0.5 m/s and 5 rad/s. With ``action_kind="delta"`` the first four are relative to the last
    set-point. Proprioception f32 [N, K, 5]: the same five, measured. Control runs at 10 Hz.

    Args:
        task: file name in sim/tabletop/tasks, or the import path of a module that defines ``TASK``.
        n: episodes side by side.
        image_size: pictures are square, 16 to 256 pixels.
        cameras: any of "external", "wrist"; none: nothing is rendered and no OpenGL is needed.
        action_kind: "absolute" or "delta".
        start_range: width of the start-state distribution; 1 = the task's own, smaller = narrower around its centre.
        render_rows: draw only the last so many rows of each chunk (a policy that looks at two rows needs two). ``Obs.frames`` then has
            fewer rows than ``Obs.state``, and run_episodes returns episodes without frames, which no store accepts. May be set any time.
        workers: processes to spread the episodes over; 1 = none.

    Raises:
        UserError: unknown task, camera or action kind; a size out of range; later: no OpenGL, NaN or a wrong shape in actions.
    """

    fps = FPS

    def __init__(
        self,
        task: str = "pick_place",
        n: int = 16,
        image_size: int = 32,
        workers: int = 1,
        cameras: Sequence[str] = CAMERAS,
        action_kind: Literal["absolute", "delta"] = "absolute",
        start_range: float = 1.0,
        render_rows: int | None = None,
    ):
        check_sizes(n, workers, image_size, MIN_SIZE, MAX_SIZE)
        check_cameras("the tabletop scene", cameras, CAMERAS)
        if action_kind not in ("absolute", "delta"):
            raise UserError(f"action_kind={action_kind!r}; choose absolute or delta")
        loaded = load_task(task)
        self.n, self.task_name, self.render_rows = n, f"tabletop/{loaded.name}", render_rows
        self.action_kind, self.cameras, self.image_size = action_kind, tuple(cameras), image_size
        settings = {
            "image_size": image_size,
            "cameras": self.cameras,
            "delta": action_kind == "delta",
            "start_range": start_range,
        }
        if workers == 1:
            self._batch = Batch(loaded, n, **settings)
        else:
            names = {"simulator": "tabletop", "sentence": loaded.sentence}
            self._batch = Pool("sim.tabletop.batch.build", n, workers, **names, task=task, **settings)
        self._running = 0  # episodes since the last reset

    def spec(self) -> dict:
        """Return cameras, names, fps and action kind: the fields of a store's specification."""
        return spec(self.cameras, self.image_size, self.action_kind == "delta")

    def reset(self, seeds: Sequence[int]) -> Obs:
        """See Env. Start states depend on (task, start_range, seed) alone."""
        check_seeds(self.task_name, seeds, self.n)
        self._running = len(seeds)
        return self._batch.reset(seeds)

    def goal_holds(self) -> np.ndarray:
        """See Env."""
        return self._batch.goal_holds()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        """See Env."""
        actions, active = check_actions(self.task_name, actions, active, self._running, len(ACTION_NAMES))
        return self._batch.step(actions, active, self.render_rows)

    def get_state(self) -> np.ndarray:
        """See Rewindable: f64 [N, D], everything the future depends on, the solver's warm start included."""
        return self._batch.get_state()

    def set_state(self, states: np.ndarray) -> Obs:
        """See Rewindable."""
        states = check_states(self.task_name, states, self.n, self._batch.state_size())
        self._running = len(states)
        return self._batch.set_state(states)

    def close(self) -> None:
        """Free renderers and end worker processes."""
        self._batch.close()
