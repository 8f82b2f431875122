"""RobosuiteEnv: N episodes of one of robomimic's tasks side by side, in this process or spread over worker processes."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.errors import UserError, nearest
from sim.batched import BatchedEnv
from sim.checks import check_cameras, check_sizes
from sim.robosuite.batch import build
from sim.robosuite.simulator import FPS, KEYS, WIDTHS
from sim.robosuite.tasks import load_task, robosuite
from sim.workers import Pool

SIZES = dict(zip(KEYS, (3, 4, 2), strict=True))
ACTION_NAMES = {
    "absolute": ("x", "y", "z", *(f"r{row}{column}" for row in (1, 2) for column in (1, 2, 3)), "gripper"),
    "delta": ("dx", "dy", "dz", "drx", "dry", "drz", "gripper"),
}
MIN_SIZE, MAX_SIZE = 32, 256


class RobosuiteEnv(BatchedEnv):
    """Satisfies ``robowm.protocols.Env`` and ``Rewindable``. Control runs at 20 Hz, through robosuite's operational-space controller.

    Actions f32 [N, H, A], of each Panda arm in turn, all in the world's frame:

    * "absolute", 10 numbers: where the point between the fingers (robosuite's grip site) is to be, x, y, z in metres; the first two rows of
      its rotation matrix (see rotation.py; any lengths); gripper -1 open, 1 closed. What Diffusion Policy and ReGuide train on.
    * "delta", 7 numbers in [-1, 1] (beyond is clipped): 1 is 5 cm in x, y, z, and 0.5 rad of a rotation vector, from where it is now;
      gripper as above. What robomimic's files hold.

    The sign of gripper counts: the fingers' command moves by 0.2 of its range of -1 to 1 each step. Proprioception f32 [N, K, 9 per arm]:
    robomimic's keys robot0_eef_pos (grip site, metres), robot0_eef_quat (x, y, z, w; of the hand, a quarter turn about its own z from the
    grip site) and robot0_gripper_qpos (metres). Environment state f32 [N, K, E]: robomimic's "object", E = 10, 14, 14, 41 and 44, relative
    poses taken at the same moment as the others (robosuite's own are a step late). Success is robosuite's, judged after every step; the
    reward is 1 where it holds.

    Cameras: "external" is robosuite's agentview (tool_hang: sideview, transport: shouldercamera0), "wrist" its robot0_eye_in_hand;
    transport also has "external1" (shouldercamera1) and "wrist1" (robot1_eye_in_hand). These are the views that robomimic trains on.

    Start states depend on (task, seed) alone and have robosuite's distribution, but for the size of Lift's cube, which is the same
    in all episodes: one model serves them all.

    Args:
        task: "lift", "can", "square", "transport" or "tool_hang".
        n: episodes side by side; they share one simulator, so n costs time, not memory.
        image_size: pictures are square, 32 to 256 pixels.
        workers: processes to spread the episodes over; 1 = none.
        cameras: any of the task's; none: nothing is rendered and no OpenGL is needed.
        action_kind: "absolute" or "delta".
        render_rows: draw only the last so many rows of each chunk, see TabletopEnv. May be set any time.

    Raises:
        UserError: robosuite is not installed, unknown task, camera or kind of action, a size out of range; later: no OpenGL, bad actions.
    """

    def __init__(
        self,
        task: str = "lift",
        n: int = 16,
        image_size: int = 84,
        workers: int = 1,
        cameras: Sequence[str] = ("external", "wrist"),
        action_kind: str = "absolute",
        render_rows: int | None = None,
    ):
        self._task = load_task(task)
        check_sizes(n, workers, image_size, MIN_SIZE, MAX_SIZE)
        check_cameras(f"robosuite/{task}", cameras, list(self._task.cameras))
        if action_kind not in WIDTHS:
            raise UserError(f"no action_kind {action_kind!r}: {nearest(action_kind, WIDTHS)}")
        robosuite()
        self.fps, self.cameras, self.image_size, self.action_kind = float(FPS), tuple(cameras), image_size, action_kind
        self.settings = settings = {"task": task, "image_size": image_size, "cameras": self.cameras, "action_kind": action_kind}
        if workers == 1:
            batch = build(n, **settings)
        else:
            batch = Pool("sim.robosuite.batch.build", n, workers, simulator="robosuite", sentence=self._task.sentence, **settings)
        super().__init__(batch, n, f"robosuite/{task}", WIDTHS[action_kind] * self._task.arms, render_rows)

    def spec(self) -> dict:
        """Return the fields of a store's specification; numbers of robomimic's keys are named as its files are imported, "<key>.<i>"."""
        arms = self._task.arms
        names = ACTION_NAMES[self.action_kind]
        return {
            "cameras": dict.fromkeys(self.cameras, (self.image_size, self.image_size)),
            "state_names": [f"robot{arm}_{key}.{i}" for arm in range(arms) for key, size in SIZES.items() for i in range(size)],
            "action_names": list(names) if arms == 1 else [f"robot{arm}_{name}" for arm in range(arms) for name in names],
            "environment_state_names": [f"object.{i}" for i in range(self._task.truth)],
            "fps": self.fps,
            "action_kind": self.action_kind,
            "gripper": (-1.0, 1.0),
        }
