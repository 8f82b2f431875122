"""LeRobotDataset v3: import and export, through lerobot's own class.

A LeRobot episode of n frames has n observations and n actions. The observation after its last action was never recorded, so an import
drops that action: n frames give n - 1 steps. An export writes T + 1 frames and fills the last action (absolute targets repeat the last one,
deltas are zero), so that import after export gives back the same T steps. What LeRobot has no place for (start seed, policy, judge, ...)
lies in ``meta/robowm.json``, which other tools ignore; it is used on import only while it still fits the data set.

Frames are found by integer arithmetic: frame k of an episode is row ``dataset_from_index + k`` of the table and frame
``round(from_timestamp * fps) + k`` of the video.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robowm.artefacts import fingerprint_files, write_json
from robowm.data.importing import camera_names, controller_segments, import_episodes, rescale_gripper, to_frames
from robowm.data.spec import ACTION, CONTROLLER, ENVIRONMENT_STATE, IMAGE, REWARD, SEGMENT, STATE
from robowm.data.store import EpisodeMeta, EpisodeStore, StoreSpec
from robowm.errors import UserError
from robowm.types import Controller, Episode, Source

if TYPE_CHECKING:
    from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

SUCCESS, DONE, INTERVENTION = "next.success", "next.done", "intervention"
FACTS = Path("meta/robowm.json")
TOLERANCE_S = 1e-3  # a time stamp this far from frame / fps is not rounding any more
CODEC, QUALITY = "h264", 12  # lerobot's default (AV1, crf 30) repeats whole frames of small pictures, which shifts them by one step
HUMAN = (Controller.HUMAN_RECOVERY, Controller.HUMAN_CORRECTION)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Options:
    """How to read what the data set itself does not say."""

    cameras: dict[str, str]
    kind: str
    success: float | None
    gripper: list[float] | None
    image_size: list[int] | None


def run_lerobot(
    *,
    root: str | Path,
    output_dir: str | Path,
    cameras: Mapping[str, str] | Sequence[str] | None = None,
    repo_id: str = "local/dataset",
    kind: str = "demo",
    success: float | None = None,
    action_kind: str = "absolute",
    gripper: Sequence[float] | None = None,
    image_size: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Import the LeRobotDataset v3 in folder ``root``, stored as images or as video, into the store ``output_dir``, sealed as "store".

    ``cameras`` {name in the store: name in the data set} or a list, None for all. The verdict is ``next.success`` (any frame) where the
    data set has it, else ``success`` (judged by a human; None: not judged). The controller is the column ``controller`` where there is
    one, else ``intervention`` (human_correction, others policy), else demo or policy by ``kind``. ``gripper`` gives (open, closed) of the
    action dimension named gripper, mapped to (0, 1). ``image_size`` (height, width) scales frames. Raises UserError in one line.
    """
    root = Path(root)
    dataset = _open(root, repo_id)
    found = [key.removeprefix(IMAGE) for key in dataset.meta.camera_keys if key.startswith(IMAGE) and key not in dataset.meta.depth_keys]
    options = _Options(
        cameras=camera_names(cameras, found, str(root)),
        kind=kind,
        success=success,
        gripper=None if gripper is None else [float(g) for g in gripper],
        image_size=None if image_size is None else [int(n) for n in image_size],
    )
    facts = _facts(root, dataset)
    spec = _spec(dataset, root, options, action_kind) if facts is None else _known_spec(facts, options)
    files = [root / "meta/info.json", *(root / "data").rglob("*.parquet"), *(root / "meta/episodes").rglob("*.parquet")]
    videos = {str(path.relative_to(root)): str(path.stat().st_size) for path in sorted((root / "videos").rglob("*.mp4"))}
    store = import_episodes(
        output_dir,
        spec=spec,
        names=[f"{root} episode {i}" for i in range(dataset.num_episodes)],
        read=lambda i: _read_episode(dataset, root, i, spec, options, facts),
        config={"format": "lerobot", "root": root.name, "spec": spec.to_json(), **options.__dict__},
        inputs={"source": fingerprint_files(files), **videos},
    )
    return {"episodes": len(store), "steps": int(store.lengths.sum())}


def export_lerobot(
    store: EpisodeStore, root: str | Path, *, repo_id: str = "local/dataset", use_videos: bool = True, robot_type: str | None = None
) -> None:
    """Write ``store`` as a LeRobotDataset v3 in the new folder ``root``, as video (lossy) or images (exact).

    Besides frames, state and action it has ``next.reward``, ``next.done``, ``next.success``, bool ``intervention`` (a human had control),
    ``controller`` and ``segment``. Raises UserError if ``root`` exists or if fps is not a whole number, which LeRobot needs.
    """
    from lerobot.configs.video import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    root, spec = Path(root), store.spec
    if root.exists():
        raise UserError(f"{root} exists; choose another folder for the export or delete it")
    if len(store) == 0:
        raise UserError(f"{store.path} holds no episodes; nothing to export")
    if spec.fps != round(spec.fps):
        raise UserError(f"{store.path} runs at {spec.fps} fps; LeRobot needs a whole number, and rounding would shift every time stamp")
    temporary = root.with_name(f".{root.name}.{uuid.uuid4().hex[:8]}")
    try:
        dataset = LeRobotDataset.create(
            repo_id,
            int(spec.fps),
            _features(spec, use_videos),
            root=temporary,
            robot_type=robot_type,
            use_videos=use_videos,
            rgb_encoder=RGBEncoderConfig(vcodec=CODEC, crf=QUALITY) if use_videos else None,
        )
        for i in range(len(store)):
            for frame in _frames_of(store.episode(i, spec.pictures()), spec):
                dataset.add_frame(frame)
            dataset.save_episode()
        dataset.finalize()
        write_json(temporary / FACTS, {"spec": spec.to_json(), "episodes": [meta.to_json() for meta in store.metas]})
        temporary.rename(root)
    except OSError as error:
        raise UserError(f"cannot write {root}: {error}; free some space or choose another folder") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def exported(root: str | Path) -> list[dict[str, Any]] | None:
    """Return what ``export_lerobot`` wrote of each episode (EpisodeMeta as JSON) in ``root``; None where it did not."""
    path = Path(root) / FACTS
    return json.loads(path.read_text())["episodes"] if path.is_file() else None


# ------------------------------------------------------------------ reading


def _open(root: Path, repo_id: str) -> LeRobotDataset:
    """Open a data set that is whole on this disk; lerobot would otherwise create the folder and ask the hub."""
    info_path = root / "meta/info.json"
    if not info_path.is_file():
        raise UserError(f"{root} holds no meta/info.json; expected a LeRobotDataset folder")
    info = json.loads(info_path.read_text())
    version = str(info.get("codebase_version"))
    if not version.startswith("v3"):
        convert = "python -m lerobot.scripts.convert_dataset_v21_to_v30 --repo-id=... --root=..."
        raise UserError(f"{root} is a LeRobotDataset {version}, expected v3; convert it with: {convert}")
    for needed in ("meta/tasks.parquet", "meta/episodes", "data"):
        if not (root / needed).exists():
            raise UserError(f"{root} lacks {needed}: its recording was not finished (finalize) or its copy is not complete")
    for key in (ACTION, STATE):
        if key not in info["features"]:
            raise UserError(f"{root} has no feature {key!r}; it has {', '.join(info['features'])}")
    from datasets.exceptions import DatasetsError
    from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    try:
        meta = LeRobotDatasetMetadata(repo_id, root)
        _check_files(meta, root)
        return LeRobotDataset(repo_id, root, return_uint8=True)
    except (OSError, ValueError, KeyError, DatasetsError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{root} cannot be read ({line}); was the recording finished with finalize()?") from error


def _check_files(meta: LeRobotDatasetMetadata, root: Path) -> None:
    """Raise UserError unless every file is there and the tables hold as many frames as the metadata counts."""
    from pyarrow.parquet import read_metadata

    tables = set()
    for i in range(meta.total_episodes):
        tables.add(meta.get_data_file_path(i))
        for path in [meta.get_data_file_path(i), *(meta.get_video_file_path(i, key) for key in meta.video_keys)]:
            if not (root / path).is_file():
                raise UserError(f"{root} lacks {path}, which episode {i} needs; copy the whole data set")
    rows = sum(read_metadata(root / path).num_rows for path in tables)
    if rows != meta.total_frames:
        raise UserError(f"{root} counts {meta.total_frames} frames in meta/info.json, its tables hold {rows}; the recording was cut off")


def _facts(root: Path, dataset: LeRobotDataset) -> dict | None:
    """Return what an export of ours noted, or None if there is nothing or if the data set was changed since."""
    if not (root / FACTS).is_file():
        return None
    facts = json.loads((root / FACTS).read_text())
    lengths = [row["length"] - 1 for row in dataset.meta.episodes]
    if [episode["length"] for episode in facts["episodes"]] != lengths:
        log.warning("%s no longer fits the data set (episodes were merged or deleted) and is ignored", root / FACTS)
        return None
    return facts


def _known_spec(facts: dict, options: _Options) -> StoreSpec:
    spec = StoreSpec.from_json(facts["spec"])
    sizes = {name: tuple(options.image_size or spec.cameras[key]) for name, key in options.cameras.items()}
    return StoreSpec.from_json({**spec.to_json(), "cameras": sizes})


def _spec(dataset: LeRobotDataset, root: Path, options: _Options, action_kind: str) -> StoreSpec:
    features = dataset.meta.features
    action_names = _names(features[ACTION], "action")
    has_gripper = any("gripper" in name for name in action_names)
    if options.gripper is not None and not has_gripper:
        raise UserError(f"{root}: no action dimension is named gripper, there are {', '.join(action_names)}; leave gripper out")
    sizes = {name: tuple(features[IMAGE + key]["shape"][:2]) for name, key in options.cameras.items()}
    return StoreSpec(
        cameras={name: tuple(options.image_size or size) for name, size in sizes.items()},
        state_names=_names(features[STATE], "state"),
        action_names=action_names,
        environment_state_names=_names(features[ENVIRONMENT_STATE], "environment_state") if ENVIRONMENT_STATE in features else None,
        fps=float(dataset.fps),
        action_kind=action_kind,
        gripper=(0.0, 1.0) if has_gripper and options.gripper is not None else None,
    )


def _names(feature: Mapping[str, Any], default: str) -> list[str]:
    """Return one name per dimension; LeRobot allows a list, a dict of lists, or none."""
    names, width = feature.get("names"), math.prod(feature["shape"])
    if isinstance(names, Mapping):
        names = [name for part in names.values() for name in part]
    return [str(n) for n in names] if names is not None and len(names) == width else [f"{default}.{i}" for i in range(width)]


def _read_episode(dataset: LeRobotDataset, root: Path, i: int, spec: StoreSpec, options: _Options, facts: dict | None) -> Episode:
    row = dataset.meta.episodes[i]
    first, last = row["dataset_from_index"], row["dataset_to_index"]
    columns = [key for key, feature in dataset.meta.features.items() if feature["dtype"] not in ("image", "video", "string")]
    table = dataset.hf_dataset.with_format("numpy", columns=columns)[first:last]
    _check_times(table, dataset.fps, i, str(dataset.meta.get_data_file_path(i)))
    steps = last - first - 1
    controller = _controller(table, options, steps)
    verdict = float(np.any(table[SUCCESS])) if SUCCESS in table else options.success
    judged_by = "dataset" if SUCCESS in table else "human"
    task_index = int(table["task_index"][0])
    known = EpisodeMeta.from_json(facts["episodes"][i]) if facts is not None else None
    if known is None:
        unjudged = verdict is None
        known = EpisodeMeta(
            length=steps,
            task=str(dataset.meta.tasks.iloc[task_index].name),
            fps=spec.fps,
            source=Source(kind=options.kind, seed=i),
            success=float("nan") if unjudged else float(verdict),
            judged_by="" if unjudged else judged_by,
            terminated=False,
            content="",
        )
    return Episode(
        frames={name: _camera(dataset, root, i, key, options) for name, key in options.cameras.items()},
        state=table[STATE].astype(np.float32).reshape(steps + 1, -1),
        environment_state=None
        if spec.environment_state_names is None
        else table[ENVIRONMENT_STATE].astype(np.float32).reshape(steps + 1, -1),
        action=rescale_gripper(table[ACTION].astype(np.float32).reshape(steps + 1, -1)[:steps], spec.action_names, options.gripper),
        reward=table[REWARD].astype(np.float32).reshape(-1)[:steps] if REWARD in table else np.zeros(steps, np.float32),
        controller=controller,
        segment=table[SEGMENT].astype(np.int32).reshape(-1)[:steps] if SEGMENT in table else controller_segments(controller),
        task=known.task,
        fps=spec.fps,
        source=known.source,
        success=known.success,
        judged_by=known.judged_by,
        terminated=known.terminated,
    )


def _controller(table: Mapping[str, np.ndarray], options: _Options, steps: int) -> np.ndarray:
    if CONTROLLER in table:
        return table[CONTROLLER].astype(np.int8).reshape(-1)[:steps]
    autonomous = Controller.DEMO if options.kind in ("demo", "human") else Controller.POLICY
    if INTERVENTION in table:
        human = table[INTERVENTION].reshape(-1)[:steps].astype(bool)
        return np.where(human, Controller.HUMAN_CORRECTION, autonomous).astype(np.int8)
    return np.full(steps, autonomous, np.int8)


def _check_times(table: Mapping[str, np.ndarray], fps: int, i: int, file: str) -> None:
    """Raise UserError unless frames are numbered 0, 1, ... and frame k has the time stamp k / fps."""
    frame, time = table["frame_index"].astype(np.int64), table["timestamp"].astype(np.float64)
    wrong = np.flatnonzero(frame != np.arange(len(frame)))
    if len(wrong):
        raise UserError(f"{file}: row {wrong[0]} of episode {i} has frame_index {frame[wrong[0]]}, expected {wrong[0]}; frames are missing")
    late = np.flatnonzero(np.abs(time - frame / fps) > TOLERANCE_S)
    if len(late):
        k = int(late[0])
        raise UserError(
            f"{file}: frame {k} of episode {i} has timestamp {time[k]:.4f} s, expected {k / fps:.4f} at {fps} fps; "
            "the declared fps is wrong or frames were dropped: correct meta/info.json or resample"
        )


def _camera(dataset: LeRobotDataset, root: Path, i: int, camera: str, options: _Options) -> np.ndarray:
    """Return uint8 [T+1, h, w, 3]."""
    key, row = IMAGE + camera, dataset.meta.episodes[i]
    if key not in dataset.meta.video_keys:
        images = dataset.hf_dataset[row["dataset_from_index"] : row["dataset_to_index"]][key]
        pixels = np.stack([(image * 255).round().byte().permute(1, 2, 0).numpy() for image in images])
        return to_frames(pixels, key, options.image_size)
    from lerobot.datasets.video_utils import decode_video_frames

    path = root / dataset.meta.get_video_file_path(i, key)
    first = round(row[f"videos/{key}/from_timestamp"] * dataset.fps)
    times = [(first + k) / dataset.fps for k in range(row["length"])]
    try:
        frames = decode_video_frames(path, times, TOLERANCE_S, return_uint8=True)
    except (ValueError, RuntimeError, IndexError, OSError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path}: frames {first} to {first + len(times) - 1} cannot be decoded ({line}); copy or record it again"
        ) from error
    return to_frames(frames.permute(0, 2, 3, 1).contiguous().numpy(), key, options.image_size)


# ------------------------------------------------------------------ writing


def _features(spec: StoreSpec, use_videos: bool) -> dict[str, dict]:
    def vector(names: list[str]) -> dict:
        return {"dtype": "float32", "shape": (len(names),), "names": names}

    def scalar(dtype: str) -> dict:
        return {"dtype": dtype, "shape": (1,), "names": None}

    kind = "video" if use_videos else "image"
    axes = ["height", "width", "channels"]
    features = {IMAGE + camera: {"dtype": kind, "shape": (*size, 3), "names": axes} for camera, size in spec.pictures().items()}
    features[STATE] = vector(spec.state_names)
    if spec.environment_state_names is not None:
        features[ENVIRONMENT_STATE] = vector(spec.environment_state_names)
    features[ACTION] = vector(spec.action_names)
    features |= {REWARD: scalar("float32"), DONE: scalar("bool"), SUCCESS: scalar("bool"), INTERVENTION: scalar("bool")}
    return features | {CONTROLLER: scalar("int64"), SEGMENT: scalar("int64")}


def _frames_of(episode: Episode, spec: StoreSpec):
    """Yield the T + 1 frames of ``episode`` as LeRobot takes them; the last one's action and reward were never executed."""
    steps = len(episode)
    if steps == 0:
        raise UserError("an episode without steps cannot be exported to LeRobot; leave it out (data/merge.py: select_episodes)")
    hold = episode.action[-1:] if spec.action_kind == "absolute" else np.zeros_like(episode.action[-1:])
    action = np.concatenate([episode.action, hold])
    solved = episode.reward > 0 if (episode.reward > 0).any() else np.arange(steps) == steps - 1
    solved = solved & (episode.success == 1)
    for t in range(steps + 1):
        s = min(t, steps - 1)  # the last frame repeats what the last step says
        frame = {IMAGE + camera: frames[t] for camera, frames in episode.frames.items()}
        frame |= {STATE: episode.state[t], ACTION: action[t], "task": episode.task}
        if episode.environment_state is not None:
            frame[ENVIRONMENT_STATE] = episode.environment_state[t]
        frame |= {REWARD: np.array([episode.reward[t] if t < steps else 0], np.float32), DONE: np.array([t >= steps - 1])}
        frame |= {SUCCESS: np.array([bool(solved[s])]), INTERVENTION: np.array([bool(episode.controller[s] in HUMAN)])}
        frame |= {CONTROLLER: np.array([int(episode.controller[s])]), SEGMENT: np.array([int(episode.segment[s])])}
        yield frame
