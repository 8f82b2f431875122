"""The replay buffers of Diffusion Policy: a zarr 2 group (folder or zip) with ``data/<key>`` [rows, ...] and ``meta/episode_ends`` [E].

An episode of n rows has n observations and n actions; the observation after its last action was never recorded, so that action is dropped:
n rows give n - 1 steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from robowm.data.importing import camera_names, import_episodes, rescale_gripper, to_frames
from robowm.data.spec import StoreSpec
from robowm.errors import UserError, nearest
from robowm.types import Controller, Episode, Source


def run_diffusion_policy(
    *,
    path: str | Path,
    output_dir: str | Path,
    fps: float,
    cameras: Mapping[str, str] | Sequence[str],
    state_keys: Sequence[str] = ("state",),
    state_columns: Sequence[int] | None = None,
    action_key: str = "action",
    action_names: Sequence[str] | None = None,
    action_kind: str = "absolute",
    gripper: Sequence[float] | None = None,
    task: str | None = None,
    success: float | None = None,
    image_size: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Import the replay buffer ``path`` (``*.zarr`` or ``*.zarr.zip``) into the store ``output_dir``, sealed as "store".

    ``cameras`` {name in the store: key in the buffer} or a list of keys. ``state_keys`` are joined, ``state_columns`` keeps some of the
    joined columns (Push-T's ``state`` is agent x, y, then the block: [0, 1] is proprioception). ``success`` is the verdict for all
    episodes, judged by a human; None: not judged. ``gripper`` gives (open, closed) of the action dimension named gripper, mapped to
    (0, 1). Raises UserError in one line.
    """
    path = Path(path)
    group = _open(path)
    data = group["data"]
    arrays = sorted(name for name, member in data.members() if isinstance(member, zarr.Array))
    cameras = camera_names(cameras, [name for name in arrays if data[name].ndim == 4], f"{path} (data)")
    for key in (action_key, *state_keys):
        if key not in arrays:
            raise UserError(f"{path} has no data/{key}; {nearest(key, arrays)}")
    ends = _episode_ends(group, path, data[action_key].shape[0])
    state, state_names = _state(data, path, ends[-1], state_keys, state_columns)
    action = data[action_key][: ends[-1]].reshape(ends[-1], -1).astype(np.float32)
    action_names = [f"action.{i}" for i in range(action.shape[1])] if action_names is None else list(action_names)
    if len(action_names) != action.shape[1]:
        raise UserError(f"{path}: data/{action_key} has {action.shape[1]} dimensions, action_names gives {len(action_names)}")
    size = None if image_size is None else [int(n) for n in image_size]
    spec = StoreSpec(
        cameras={name: tuple(size or data[key].shape[1:3]) for name, key in cameras.items()},
        state_names=state_names,
        action_names=action_names,
        environment_state_names=None,
        fps=float(fps),
        action_kind=action_kind,
        gripper=(0.0, 1.0) if gripper is not None and any("gripper" in name for name in action_names) else None,
    )

    def read(i: int) -> Episode:
        first, last = int(ends[i - 1]) if i else 0, int(ends[i])
        frames = {name: to_frames(data[key][first:last], f"data/{key}", size) for name, key in cameras.items()}
        held = rescale_gripper(action[first : last - 1], action_names, gripper)
        return _episode(frames, state[first:last], held, task or path.name.split(".")[0], spec.fps, i, success)

    config = {"format": "diffusion_policy", "path": path.name, "cameras": cameras, "spec": spec.to_json(), "task": task, "success": success}
    config |= {"gripper": None if gripper is None else list(gripper), "state_keys": list(state_keys), "action_key": action_key}
    content = hashlib.sha256(ends.tobytes() + state.tobytes() + action.tobytes()).hexdigest()[:16]
    names = [f"{path} episode {i}" for i in range(len(ends))]
    store = import_episodes(output_dir, spec=spec, names=names, read=read, config=config, inputs={"source": content})
    return {"episodes": len(store), "steps": int(store.lengths.sum())}


def _state(data: zarr.Group, path: Path, rows: int, keys: Sequence[str], columns: Sequence[int] | None) -> tuple[np.ndarray, list[str]]:
    """Return the joined state f32 [rows, S] and its names."""
    state = np.concatenate([data[key][:rows].reshape(rows, -1) for key in keys], 1).astype(np.float32)
    names = [f"{key}.{i}" for key in keys for i in range(int(np.prod(data[key].shape[1:])))]
    columns = list(range(len(names))) if columns is None else [int(c) for c in columns]
    if bad := [c for c in columns if not 0 <= c < len(names)]:
        raise UserError(f"{path}: state_columns names {bad[0]}, the state has columns 0 to {len(names) - 1}")
    return np.ascontiguousarray(state[:, columns]), [names[c] for c in columns]


def _episode(frames, state: np.ndarray, action: np.ndarray, task: str, fps: float, number: int, success: float | None) -> Episode:
    steps = len(state) - 1
    if steps < 1:
        raise UserError(f"it has {len(state)} row(s); two are needed for one step")
    return Episode(
        frames=frames,
        state=state,
        action=action,
        reward=np.zeros(steps, np.float32),
        controller=np.full(steps, Controller.DEMO, np.int8),
        segment=np.zeros(steps, np.int32),
        task=task,
        fps=fps,
        source=Source(kind="demo", seed=number),
        success=float("nan") if success is None else float(success),
        judged_by="" if success is None else "human",
    )


def _open(path: Path) -> zarr.Group:
    if not path.exists():
        raise UserError(f"{path} does not exist; expected a Diffusion Policy replay buffer (.zarr or .zarr.zip)")
    try:
        group = zarr.open_group(zarr.storage.ZipStore(path, mode="r") if path.is_file() else path, mode="r")
    except (OSError, ValueError, KeyError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} is not a zarr group ({line})") from error
    for needed in ("data", "meta/episode_ends"):
        if needed not in group:
            raise UserError(f"{path} has no {needed!r} but {', '.join(sorted(group.keys())) or 'nothing'}; it is not a replay buffer")
    return group


def _episode_ends(group: zarr.Group, path: Path, rows: int) -> np.ndarray:
    ends = np.asarray(group["meta/episode_ends"][:], np.int64)
    if len(ends) == 0:
        raise UserError(f"{path} holds no episodes (meta/episode_ends is empty)")
    if (np.diff(ends, prepend=0) < 0).any() or ends[-1] > rows:
        raise UserError(f"{path}: meta/episode_ends goes to {ends[-1]} over {rows} rows of data, or does not ascend; the buffer is damaged")
    return ends
