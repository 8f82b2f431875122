"""What every episode of a store has in common, what is known about one without reading its frames, and the check at the door.

Conventions of all stores: frames are uint8 RGB with row 0 at the top of the picture; states and actions are float32 in metres and radians;
an action dimension whose name contains ``gripper`` runs from 0 = open to 1 = closed unless ``StoreSpec.gripper`` says otherwise.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from robowm.errors import UserError, nearest
from robowm.types import MASK, Controller, Episode, Source, pictures

IMAGE = "observation.images."
STATE, ENVIRONMENT_STATE, ACTION = "observation.state", "observation.environment_state", "action"
REWARD, CONTROLLER, SEGMENT = "next.reward", "controller", "segment"


@dataclass(frozen=True)
class StoreSpec:
    """What every episode of a store has in common."""

    cameras: dict[str, tuple[int, int]]  # {camera: (height, width)} in pixels
    state_names: list[str]  # S names
    action_names: list[str]  # A names
    environment_state_names: list[str] | None  # E names; None where the simulator's truth is not recorded
    fps: float  # control steps per second
    action_kind: Literal["absolute", "delta"]
    gripper: tuple[float, float] | None = (0.0, 1.0)  # (open, closed) of action dimensions named gripper; None: unknown

    def __post_init__(self):
        object.__setattr__(self, "cameras", {name: (int(h), int(w)) for name, (h, w) in self.cameras.items()})
        for name in ("state_names", "action_names", "environment_state_names"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else [str(n) for n in value])
        object.__setattr__(self, "gripper", None if self.gripper is None else (float(self.gripper[0]), float(self.gripper[1])))
        if self.action_kind not in ("absolute", "delta"):
            raise UserError(f"action_kind is {self.action_kind!r}; it must be 'absolute' or 'delta'")
        if not self.fps > 0:
            raise UserError(f"fps is {self.fps!r}; it must be above 0")
        if not self.action_names:
            raise UserError("a store needs at least one action dimension; action_names is empty")

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> StoreSpec:
        return cls(**record)

    def array_keys(self) -> list[str]:
        """Return the arrays that each episode holds on disk."""
        truth = [] if self.environment_state_names is None else [ENVIRONMENT_STATE]
        return [*(IMAGE + camera for camera in self.cameras), STATE, *truth, ACTION, REWARD, CONTROLLER, SEGMENT]

    def pictures(self) -> dict[str, tuple[int, int]]:
        """Return the cameras that models and exports look at where none are named: all but masks."""
        return {name: self.cameras[name] for name in pictures(self.cameras)}

    def masks(self, cameras: Iterable[str], where: str) -> list[str]:
        """Return the names of the masks of ``cameras``; UserError where one was not recorded in ``where``."""
        names = [name + MASK for name in cameras]
        if missing := [name for name in names if name not in self.cameras]:
            raise UserError(f"{where} has no masks ({missing[0]}); record it with env.masks=true")
        return names

    def check_cameras(self, cameras: Iterable[str], where: str, key: str = "cameras") -> None:
        """Raise UserError for the first of ``cameras`` that ``where`` lacks; ``key`` is what to set instead."""
        for camera in cameras:
            if camera not in self.cameras:
                raise UserError(f"{where} has no camera {camera!r}; {nearest(camera, self.cameras)}; set {key}=[{', '.join(self.cameras)}]")


@dataclass(frozen=True)
class EpisodeMeta:
    """What is known about an episode without reading its arrays."""

    length: int  # T
    task: str
    fps: float
    source: Source
    success: float  # 1 / 0 / nan = not judged
    judged_by: str
    terminated: bool
    content: str  # hash of arrays and facts

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "success": None if math.isnan(self.success) else self.success}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> EpisodeMeta:
        success = float("nan") if record["success"] is None else float(record["success"])
        return cls(**{**record, "source": Source(**record["source"]), "success": success})


def tasks_of(stores: Iterable[Sequence[EpisodeMeta]], earlier: Iterable[str] = ()) -> list[str]:
    """Return the sentences of the episodes of ``stores`` and ``earlier`` ones, each once, in order of the alphabet; no empty ones."""
    return sorted({*earlier, *(meta.task for metas in stores for meta in metas)} - {""})


def check_tasks(asked: Iterable[str], trained: Sequence[str], what: str) -> None:
    """Raise UserError for the first sentence ``asked`` of ``what`` that it was not ``trained`` on; unknown ones pass."""
    for task in asked:
        if task and trained and task not in trained:
            raise UserError(
                f"{what} was trained on {', '.join(map(repr, trained))}, here the task is {task!r}; use the matching checkpoint, or give "
                f"tasks=['{task}'] beside its path if it means the same"
            )


def episode_arrays(episode: Episode) -> dict[str, np.ndarray]:
    """Return the arrays of ``episode`` under their names on disk."""
    truth = {} if episode.environment_state is None else {ENVIRONMENT_STATE: episode.environment_state}
    frames = {IMAGE + camera: frames for camera, frames in episode.frames.items()}
    rest = {ACTION: episode.action, REWARD: episode.reward, CONTROLLER: episode.controller, SEGMENT: episode.segment}
    return {**frames, STATE: episode.state, **truth, **rest}


def describe(episode: Episode) -> EpisodeMeta:
    """Return the facts of ``episode`` with the hash of its content."""
    facts = EpisodeMeta(
        length=len(episode),
        task=episode.task,
        fps=float(episode.fps),
        source=episode.source,
        success=float(episode.success),
        judged_by=episode.judged_by,
        terminated=bool(episode.terminated),
        content="",
    )
    digest = hashlib.sha256(json.dumps(facts.to_json(), sort_keys=True).encode())
    for key, array in sorted(episode_arrays(episode).items()):
        digest.update(f"{key}:{array.dtype}:{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data if array.size else b"")
    return EpisodeMeta(**{**facts.__dict__, "content": digest.hexdigest()[:32]})


def check_episode(spec: StoreSpec, episode: Episode) -> None:
    """Raise UserError with the first thing about ``episode`` that does not fit ``spec``."""
    arrays = episode_arrays(episode)
    if missing := [key for key in spec.array_keys() if key not in arrays]:
        raise UserError(f"the episode lacks {missing[0]!r}; it has {', '.join(arrays)}")
    if extra := [key for key in arrays if key not in spec.array_keys()]:
        raise UserError(f"the episode has {extra[0]!r}, which its store does not declare; {nearest(extra[0], spec.array_keys())}")
    for key, (dtype, shape) in _expected(spec, len(episode.action)).items():
        array = arrays[key]
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
            found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise UserError(f"{key} is {found}, expected {dtype} {shape} (T = {len(episode.action)} steps have T+1 observations)")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            at = np.argwhere(~np.isfinite(array))[0]
            raise UserError(f"{key} holds {array[tuple(at)]} at row {at[0]}; recorded numbers must be finite, drop or repair the episode")
    _check_facts(spec, episode)


def _expected(spec: StoreSpec, length: int) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    f32 = np.dtype(np.float32)
    expected = {IMAGE + camera: (np.dtype(np.uint8), (length + 1, *size, 3)) for camera, size in spec.cameras.items()}
    expected[STATE] = (f32, (length + 1, len(spec.state_names)))
    if spec.environment_state_names is not None:
        expected[ENVIRONMENT_STATE] = (f32, (length + 1, len(spec.environment_state_names)))
    expected[ACTION] = (f32, (length, len(spec.action_names)))
    expected[REWARD] = (f32, (length,))
    expected[CONTROLLER] = (np.dtype(np.int8), (length,))
    expected[SEGMENT] = (np.dtype(np.int32), (length,))
    return expected


def _check_facts(spec: StoreSpec, episode: Episode) -> None:
    if not math.isclose(episode.fps, spec.fps, rel_tol=1e-9):
        raise UserError(f"the episode runs at {episode.fps} fps, its store at {spec.fps}; resample it or use another store")
    if not (math.isnan(episode.success) or episode.success in (0.0, 1.0)):
        raise UserError(f"success is {episode.success}; it must be 1, 0 or nan (not judged)")
    if math.isnan(episode.success) != (episode.judged_by == ""):
        raise UserError(f"success is {episode.success} but judged_by is {episode.judged_by!r}; say who judged, or leave both open")
    known = {int(c) for c in Controller}
    if unknown := set(np.unique(episode.controller).tolist()) - known:
        raise UserError(f"controller holds {sorted(unknown)}; known values are {sorted(known)}")
    changes = np.diff(episode.segment)
    switched = np.diff(episode.controller) != 0
    if len(episode.segment) and (episode.segment[0] != 0 or ((changes != 0) & (changes != 1)).any() or (switched & (changes == 0)).any()):
        raise UserError("segment must start at 0 and count up by one at each change of controller")
