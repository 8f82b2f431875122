"""TabletopEnv: N tabletop episodes side by side, in this process or spread over worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from robowm.errors import UserError
from sim.batched import BatchedEnv
from sim.checks import check_cameras, check_sizes
from sim.tabletop.batch import Batch, spec
from sim.tabletop.control import FPS
from sim.tabletop.scene import MAX_SIZE
from sim.tabletop.task import ACTION_NAMES
from sim.tabletop.tasks import load_task
from sim.workers import Pool

CAMERAS = ("external", "wrist")
MIN_SIZE = 16
MOST_HIDDEN = 2.0  # masses and frictions up to 16 times either way; the physics was tried up to here


class TabletopEnv(BatchedEnv):
    """Satisfies ``robowm.protocols.Env`` and ``Rewindable``.

    Actions f32 [N, H, 5]: targets x, y, z (metres), yaw (radians) of the pinch point and gripper (0 = open .. 1 = closed), clipped to the
    workspace; the set-point follows at most 0.5 m/s and 5 rad/s. With ``action_kind="delta"`` the first four are relative to the last
    set-point. Proprioception f32 [N, K, 5]: the same five, measured. Control runs at 10 Hz. Start states depend on (task, start_range,
    seed) alone; a saved state f64 [N, D] holds the solver's warm start too.

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
        hidden: above 0 the object's mass, its sliding and its grip friction differ from start to start, unseen by any camera, and are the
            last three of environment_state; at 1 they reach 4, 4 and 2 times their nominal values up and down.
        masks: draw beside each camera also "<camera>_mask": 255 in channel 0 where the gripper is seen, in 1 the object, in 2 the target.

    Raises:
        UserError: unknown task, camera or action kind; a size or amount out of range; later: no OpenGL, NaN or a wrong shape in actions.
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
        hidden: float = 0.0,
        masks: bool = False,
    ):
        check_sizes(n, workers, image_size, MIN_SIZE, MAX_SIZE)
        check_cameras("the tabletop scene", cameras, CAMERAS)
        if action_kind not in ("absolute", "delta"):
            raise UserError(f"action_kind={action_kind!r}; choose absolute or delta")
        if not 0 <= hidden <= MOST_HIDDEN:
            raise UserError(f"hidden={hidden}; choose 0 (nothing) to {MOST_HIDDEN:g}")
        loaded = load_task(task)
        self.action_kind, self.cameras, self.image_size = action_kind, tuple(cameras), image_size
        self._hidden, self._masks = hidden, masks
        settings = {
            "image_size": image_size,
            "cameras": self.cameras,
            "delta": action_kind == "delta",
            "start_range": start_range,
            "hidden": hidden,
            "masks": masks,
        }
        self.settings = {**settings, "task": loaded.name}
        if workers == 1:
            batch = Batch(loaded, n, **settings)
        else:
            names = {"simulator": "tabletop", "sentence": loaded.sentence}
            batch = Pool("sim.tabletop.batch.build", n, workers, **names, task=task, **settings)
        super().__init__(batch, n, f"tabletop/{loaded.name}", len(ACTION_NAMES), render_rows)

    def spec(self) -> dict:
        """Return cameras, names, fps and action kind: the fields of a store's specification."""
        return spec(self.cameras, self.image_size, self.action_kind == "delta", self._hidden, self._masks)
