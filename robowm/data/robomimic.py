"""robomimic HDF5: import of image data sets and export, through h5py alone (robomimic itself is not needed).

A robomimic demonstration of n samples has n observations (``obs``) and n actions. The observation after the last action is the last row of
``next_obs``; a file without ``next_obs`` has lost it, so the last step is dropped. Images in these files are upright RGB.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from robowm.artefacts import fingerprint_files
from robowm.data.importing import camera_names, controller_segments, import_episodes, rescale_gripper, to_frames
from robowm.data.sampler import held_out
from robowm.data.store import EpisodeStore, StoreSpec
from robowm.errors import UserError, nearest
from robowm.types import Controller, Episode, Source

ROBOSUITE_ACTION = ["dx", "dy", "dz", "drx", "dry", "drz", "gripper"]  # OSC_POSE deltas in [-1, 1], gripper -1 open .. 1 closed


def run_robomimic(
    *,
    path: str | Path,
    output_dir: str | Path,
    cameras: Mapping[str, str] | Sequence[str],
    state_keys: Sequence[str],
    environment_state_keys: Sequence[str] = (),
    filter_key: str | None = None,
    action_names: Sequence[str] | None = None,
    action_kind: str = "delta",
    gripper: Sequence[float] | None = (-1.0, 1.0),
    fps: float | None = None,
    task: str | None = None,
    image_size: Sequence[int] | None = None,
    success_reward: float = 1.0,
) -> dict[str, Any]:
    """Import the demonstrations of ``path`` (or those listed in ``mask/<filter_key>``) into the store ``output_dir``, sealed as "store".

    ``cameras`` {name in the store: name in the file} or a list of names, for the keys ``obs/<name>_image``; ``state_keys`` are joined to
    the proprioception and ``environment_state_keys`` to the simulator's truth; the action dimension named gripper is mapped from
    ``gripper`` (open, closed) to (0, 1); ``fps`` and ``task`` default to what ``env_args`` says; an episode is a success if a reward
    reaches ``success_reward``. Demonstrations come in the order of their numbers, which are kept as seeds. Raises UserError in one line.
    """
    path = Path(path)
    with _open(path) as file:
        demos = _demos(file, path, filter_key)
        cameras = camera_names(cameras, _cameras(file, path, demos[0]), f"{path} (obs)")
        env_args = _env_args(file)
        settings = {
            "state_keys": list(state_keys),
            "environment_state_keys": list(environment_state_keys),
            "gripper": None if gripper is None else [float(g) for g in gripper],
            "task": task or env_args.get("env_name") or path.stem,
            "image_size": None if image_size is None else list(image_size),
            "success_reward": success_reward,
        }
        spec = _spec(file, path, demos[0], cameras, settings, action_names, action_kind, fps or _control_frequency(env_args, path))

        def read(i: int) -> Episode:
            return _read_demo(file, path, demos[i], spec, cameras, settings)

        config = {
            "format": "robomimic",
            "path": path.name,
            "filter_key": filter_key,
            "cameras": cameras,
            "spec": spec.to_json(),
            **settings,
        }
        store = import_episodes(
            output_dir,
            spec=spec,
            names=[f"{path} {d}" for d in demos],
            read=read,
            config=config,
            inputs={"source": fingerprint_files([path])},
        )
    return {"episodes": len(store), "steps": int(store.lengths.sum())}


def export_robomimic(store: EpisodeStore, path: str | Path, *, validation: float = 0.1, env_args: Mapping[str, Any] | None = None) -> None:
    """Write ``store`` as the robomimic HDF5 ``path`` with ``next_obs`` and the masks ``train`` and ``valid`` (``validation`` of episodes).

    State dimensions named ``<key>.<i>`` go to ``obs/<key>``, others to ``obs/state``; simulator truth likewise (``obs/environment_state``
    and ``states``); gripper values return to the file's own convention (-1 open, 1 closed).
    """
    path, spec = Path(path), store.spec
    if len(store) == 0:
        raise UserError(f"{store.path} holds no episodes; nothing to export")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with h5py.File(temporary, "w") as file:
            data = file.create_group("data")
            written = np.flatnonzero(store.lengths > 0)  # robomimic has no episodes without a step
            for i in written:
                _write_demo(data.create_group(f"demo_{i}"), store.episode(i, spec.pictures()), spec)
            data.attrs["total"] = int(store.lengths.sum())
            defaults = {"env_name": store.meta(0).task, "type": 2, "env_kwargs": {"control_freq": spec.fps}}
            data.attrs["env_args"] = json.dumps(dict(env_args) if env_args is not None else defaults)
            apart = held_out(store.metas, validation)
            for name, keep in (("train", ~apart), ("valid", apart)):
                file[f"mask/{name}"] = np.array([f"demo_{i}" for i in written if keep[i]], dtype="S")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error}; free some space or choose another path") from error
    finally:
        temporary.unlink(missing_ok=True)


# ------------------------------------------------------------------ reading


def _open(path: Path) -> h5py.File:
    if not path.is_file():
        raise UserError(f"{path} does not exist; expected a robomimic HDF5 file")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise UserError(f"{path} is not a readable HDF5 file ({error})") from error
    if "data" not in file:
        found = ", ".join(file) or "nothing"
        file.close()
        raise UserError(f"{path} has no group 'data' but {found}; it is not a robomimic data set")
    return file


def _demos(file: h5py.File, path: Path, filter_key: str | None) -> list[str]:
    """Return the demonstrations to read, in the order of their numbers."""
    names = list(file["data"])
    if filter_key is not None:
        masks = list(file["mask"]) if "mask" in file else []
        if filter_key not in masks:
            make = f"; make train and valid with: python -m robomimic.scripts.split_train_val --dataset {path}"
            raise UserError(f"{path} has no mask/{filter_key}; masks there: {', '.join(masks) or 'none'}{make}")
        listed = [name.decode() if isinstance(name, bytes) else str(name) for name in file[f"mask/{filter_key}"][()]]
        if unknown := [name for name in listed if name not in names]:
            raise UserError(f"{path}: mask/{filter_key} lists {unknown[0]!r}, which is not in data; {nearest(unknown[0], names)}")
        names = listed
    if odd := [name for name in names if not name.rpartition("_")[2].isdigit()]:
        raise UserError(f"{path}: data/{odd[0]} does not end in a number; demonstrations are named demo_0, demo_1, ...")
    if not names:
        raise UserError(f"{path} holds no demonstrations" + (f" under mask/{filter_key}" if filter_key else ""))
    return sorted(names, key=_number)


def _number(demo: str) -> int:
    return int(demo.rpartition("_")[2])


def _cameras(file: h5py.File, path: Path, demo: str) -> list[str]:
    group = file[f"data/{demo}"]
    if "obs" not in group:
        make = f"python -m robomimic.scripts.dataset_states_to_obs --dataset {path} --output_name image.hdf5 --camera_names agentview"
        raise UserError(f"{path}: data/{demo} has no obs but {', '.join(group)}; make observations from states with: {make}")
    return [key.removesuffix("_image") for key in group["obs"] if key.endswith("_image")]


def _env_args(file: h5py.File) -> dict:
    try:
        return json.loads(file["data"].attrs.get("env_args", "{}"))
    except json.JSONDecodeError:
        return {}


def _control_frequency(env_args: dict, path: Path) -> float:
    frequency = env_args.get("env_kwargs", {}).get("control_freq")
    if frequency is None:
        raise UserError(f"{path} does not say its control frequency (env_args); give fps=...")
    return float(frequency)


def _spec(file, path: Path, demo: str, cameras: dict, settings: dict, action_names, action_kind: str, fps: float) -> StoreSpec:
    group = file[f"data/{demo}"]

    def names(keys: Sequence[str]) -> list[str]:
        return [f"{key}.{i}" for key in keys for i in range(int(np.prod(_dataset(group, f"obs/{key}", path).shape[1:])))]

    width = _dataset(group, "actions", path).shape[1]
    if action_names is None:
        action_names = ROBOSUITE_ACTION if width == len(ROBOSUITE_ACTION) else [f"action.{i}" for i in range(width)]
    if len(action_names) != width:
        raise UserError(f"{path}: actions have {width} dimensions, action_names gives {len(action_names)}")
    sizes = {name: _dataset(group, f"obs/{key}_image", path).shape[1:3] for name, key in cameras.items()}
    return StoreSpec(
        cameras={name: tuple(settings["image_size"] or size) for name, size in sizes.items()},
        state_names=names(settings["state_keys"]),
        action_names=list(action_names),
        environment_state_names=names(settings["environment_state_keys"]) if settings["environment_state_keys"] else None,
        fps=fps,
        action_kind=action_kind,
        gripper=(0.0, 1.0) if settings["gripper"] is not None and any("gripper" in name for name in action_names) else None,
    )


def _dataset(group: h5py.Group, key: str, path: Path) -> h5py.Dataset:
    if key not in group:
        parent, _, name = key.rpartition("/")
        raise UserError(f"{path}: {group.name} has no {key!r}; {nearest(name, group.get(parent, group))}")
    return group[key]


def _read_demo(file, path: Path, demo: str, spec: StoreSpec, cameras: dict[str, str], settings: dict) -> Episode:
    group = file[f"data/{demo}"]
    keys = [*(f"{key}_image" for key in cameras.values()), *settings["state_keys"], *settings["environment_state_keys"]]
    complete = all(f"next_obs/{key}" in group for key in keys)
    actions = _dataset(group, "actions", path)[()]
    rewards = group["rewards"][()] if "rewards" in group else None
    steps = len(actions) if complete else len(actions) - 1
    if steps < 1:
        raise UserError(f"it has {len(actions)} samples and {'no' if not complete else ''} next_obs; nothing to learn from, filter it out")

    def rows(key: str) -> np.ndarray:
        values = _dataset(group, f"obs/{key}", path)[()]
        if len(values) != len(actions):
            raise UserError(f"obs/{key} has {len(values)} rows, actions {len(actions)}; the file is damaged")
        return np.concatenate([values, group[f"next_obs/{key}"][-1:]]) if complete else values

    def joined(names: Sequence[str]) -> np.ndarray:
        flat = [rows(key).reshape(steps + 1, -1) for key in names]
        return np.concatenate(flat, 1).astype(np.float32) if flat else np.zeros((steps + 1, 0), np.float32)

    success = float(rewards.max() >= settings["success_reward"]) if rewards is not None else float("nan")
    success = float(group.attrs.get("success", success))
    controller = group["controller"][:steps].astype(np.int8) if "controller" in group else np.full(steps, Controller.DEMO, np.int8)
    return Episode(
        frames={name: to_frames(rows(f"{key}_image"), f"obs/{key}_image", settings["image_size"]) for name, key in cameras.items()},
        state=joined(settings["state_keys"]),
        environment_state=joined(settings["environment_state_keys"]) if settings["environment_state_keys"] else None,
        action=rescale_gripper(actions[:steps].astype(np.float32), spec.action_names, settings["gripper"]),
        reward=(np.zeros(steps) if rewards is None else rewards[:steps]).astype(np.float32),
        controller=controller,
        segment=controller_segments(controller),
        task=str(group.attrs.get("task", settings["task"])),
        fps=spec.fps,
        source=Source(kind=str(group.attrs.get("kind", "demo")), seed=int(group.attrs.get("seed", _number(demo)))),
        success=success,
        judged_by="" if np.isnan(success) else str(group.attrs.get("judged_by", "simulator")),
    )


# ------------------------------------------------------------------ writing


def _write_demo(group: h5py.Group, episode: Episode, spec: StoreSpec) -> None:
    columns = _grouped(spec.state_names, "state")
    observed = {key: episode.state[:, at] for key, at in columns.items()}
    if episode.environment_state is not None:
        truth = _grouped(spec.environment_state_names, "environment_state")
        observed |= {key: episode.environment_state[:, at] for key, at in truth.items()}
        group["states"] = episode.environment_state[:-1]
    else:
        group["states"] = episode.state[:-1]
    observed |= {f"{camera}_image": frames for camera, frames in episode.frames.items()}
    for key, rows in observed.items():
        compression = "gzip" if rows.dtype == np.uint8 else None
        group.create_dataset(f"obs/{key}", data=rows[:-1], compression=compression)
        group.create_dataset(f"next_obs/{key}", data=rows[1:], compression=compression)
    group["actions"] = rescale_gripper(episode.action, spec.action_names, None if spec.gripper is None else (-1.0, 1.0), back=True)
    group["rewards"] = episode.reward
    group["dones"] = np.arange(len(episode)) == len(episode) - 1
    group["controller"] = episode.controller
    facts = {"num_samples": len(episode), "success": episode.success, "judged_by": episode.judged_by, "task": episode.task}
    group.attrs.update({**facts, "kind": episode.source.kind, "seed": episode.source.seed})


def _grouped(names: Sequence[str], default: str) -> dict[str, list[int]]:
    """Return {observation key: columns} for dimensions named ``<key>.<i>``; the others belong to ``default``."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        key, dot, number = name.rpartition(".")
        groups.setdefault(key if dot and number.isdigit() else default, []).append(i)
    return groups
