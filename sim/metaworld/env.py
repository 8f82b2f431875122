"""MetaworldEnv: N episodes of a Meta-World task side by side, in this process or spread over worker processes."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.errors import UserError
from sim.batched import BatchedEnv
from sim.checks import check_cameras, check_sizes
from sim.metaworld.batch import CAMERAS, build
from sim.metaworld.tasks import SENTENCES, metaworld, task_name
from sim.workers import Pool

RATE = 80.0  # simulation steps per second: 5 physics steps of 2.5 ms each
STATE_NAMES = ("x", "y", "z", "opening")
ACTION_NAMES = ("x", "y", "z", "gripper")
OBJECTS = [f"{k}_{part}" for k in ("first", "second") for part in ("x", "y", "z", "q1", "q2", "q3", "q4")]
NOW = [*(f"hand_{name}" for name in STATE_NAMES), *OBJECTS]
WAYS = [f"{way}_{axis}" for way in ("hand_to_first", "first_to_goal") for axis in "xyz"]
ENVIRONMENT_STATE_NAMES = (*NOW, *(f"before_{name}" for name in NOW), "goal_x", "goal_y", "goal_z", *WAYS)
MIN_SIZE, MAX_SIZE = 32, 256


class MetaworldEnv(BatchedEnv):
    """Satisfies ``robowm.protocols.Env`` and ``Rewindable``.

    Actions f32 [N, H, 4]: x, y, z and gripper in [-1, 1] (beyond is clipped). 1 moves the set-point of the hand by 1 cm in each simulation
    step of 1/80 s; the gripper opens at -1 and closes at +1. Proprioception f32 [N, K, 4]: the hand's x, y, z in metres and how far it is
    open, 0 to 1. Environment state f32 [N, K, 45]: Meta-World's full observation, that is hand and objects now and one simulation step
    earlier, then the goal (zeros where a task has one object), and after it the ways from hand to object and from object to goal. Control
    runs at 80 / ``repeat`` Hz. Success is Meta-World's own signal, the reward is 1 where it holds. In some tasks the goal shows as a ball,
    as in Meta-World's own pictures.

    Start states depend on (task, seed) alone and are those of a new Meta-World environment after ``seed(s)`` and ``reset()``.

    Args:
        task: Meta-World's name without "-v3", with "-" or "_": "drawer_open".
        n: episodes side by side; they share one simulator, so n costs time, not memory.
        image_size: pictures are square, 32 to 256 pixels.
        workers: processes to spread the episodes over; 1 = none.
        cameras: any of "external", "wrist"; none: nothing is rendered and no OpenGL is needed.
        repeat: simulation steps per action. 1 is Meta-World's own rate, at which neighbouring frames hardly differ; 4 (20 Hz) keeps its
            scripted policies working (see actors.py).
        render_rows: draw only the last so many rows of each chunk, see TabletopEnv. May be set any time.

    Raises:
        UserError: Meta-World is not installed, unknown task or camera, a size out of range; later: no OpenGL, bad actions.
    """

    def __init__(
        self,
        task: str = "drawer_open",
        n: int = 16,
        image_size: int = 32,
        workers: int = 1,
        cameras: Sequence[str] = tuple(CAMERAS),
        repeat: int = 4,
        render_rows: int | None = None,
    ):
        name = task_name(task)
        check_sizes(n, workers, image_size, MIN_SIZE, MAX_SIZE)
        check_cameras("Meta-World", cameras, CAMERAS)
        if repeat < 1:
            raise UserError(f"repeat={repeat}; an action lasts at least 1 simulation step")
        metaworld("env_dict")
        self.fps, self.cameras, self.image_size = RATE / repeat, tuple(cameras), image_size
        self.settings = settings = {"task": name, "image_size": image_size, "cameras": self.cameras, "repeat": repeat}
        if workers == 1:
            batch = build(n, **settings)
        else:
            batch = Pool("sim.metaworld.batch.build", n, workers, simulator="metaworld", sentence=SENTENCES[name], **settings)
        super().__init__(batch, n, f"metaworld/{name.replace('-', '_')}", len(ACTION_NAMES), render_rows)

    def spec(self) -> dict:
        """Return the fields of a store's specification."""
        return {
            "cameras": dict.fromkeys(self.cameras, (self.image_size, self.image_size)),
            "state_names": list(STATE_NAMES),
            "action_names": list(ACTION_NAMES),
            "environment_state_names": list(ENVIRONMENT_STATE_NAMES),
            "fps": self.fps,
            "action_kind": "delta",
            "gripper": (-1.0, 1.0),
        }
