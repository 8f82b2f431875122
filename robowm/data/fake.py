"""Small synthetic stores in which frame, state and action all encode the step, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robowm.data.store import EpisodeStore, StoreSpec
from robowm.types import Controller, Episode, Source

CORNERS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255))  # top left red, top right green, bottom left blue, bottom right white
STATE_DIM, ACTION_DIM, TRUTH_DIM = 5, 5, 3
NAMES = ["x", "y", "z", "yaw", "gripper"]


def fake_spec(cameras: dict[str, tuple[int, int]] | None = None, *, fps: float = 10.0, environment_state: bool = True) -> StoreSpec:
    """Return the spec of fake stores: cameras ``external`` and ``wrist``, 32 px, unless ``cameras`` says otherwise."""
    return StoreSpec(
        cameras=cameras or {"external": (32, 32), "wrist": (32, 32)},
        state_names=NAMES,
        action_names=NAMES,
        environment_state_names=["step", "seed", "goal"] if environment_state else None,
        fps=fps,
        action_kind="absolute",
    )


def fake_episode(spec: StoreSpec, length: int, seed: int = 0, *, success: float = 1.0, kind: str = "demo", task: str = "move") -> Episode:
    """Return an episode of ``length`` steps whose observation row t and action row t both encode t (see ``step_of_frame``).

    State and action are smooth functions of (seed, t) apart from their first entry, t / 100; corners of frames are ``CORNERS``.
    """
    times = np.arange(length + 1, dtype=np.float32)
    rng = np.random.default_rng(seed)
    phase = rng.random(STATE_DIM).astype(np.float32) * 6
    state = np.sin(times[:, None] / 9 + phase) * 0.1
    state[:, 0], state[:, 4] = times / 100, (times > length / 2) * 1.0
    action = np.sin((times[:-1, None] + 1) / 9 + phase) * 0.1
    action[:, 0], action[:, 4] = times[:-1] / 100, (times[:-1] > length / 2) * 1.0
    reward = np.zeros(length, np.float32)
    reward[-1:] = success == 1
    truth = np.stack([times, np.full_like(times, seed), np.full_like(times, length)], 1)
    return Episode(
        frames={camera: fake_frames(size, times.astype(int), seed + 7 * i) for i, (camera, size) in enumerate(spec.cameras.items())},
        state=state.astype(np.float32),
        environment_state=None if spec.environment_state_names is None else truth.astype(np.float32),
        action=action.astype(np.float32),
        reward=reward,
        controller=np.full(length, Controller.DEMO if kind == "demo" else Controller.POLICY, np.int8),
        segment=np.zeros(length, np.int32),
        task=task,
        fps=spec.fps,
        source=Source(kind=kind, seed=seed, policy="fake"),
        success=success,
        judged_by="simulator" if success == success else "",
    )


def fake_frames(size: tuple[int, int], times: np.ndarray, seed: int) -> np.ndarray:
    """Return uint8 [T+1, h, w, 3]: a square moves over a soft background, the middle pixel row encodes t, corners are coloured."""
    height, width = size
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:height, 0:width]
    tilt = rng.uniform(-1, 1, (2, 3))
    background = 110 + 40 * (yy[..., None] / height * tilt[0] + xx[..., None] / width * tilt[1])
    frames = np.repeat(background.astype(np.uint8)[None], len(times), 0)
    side = max(2, height // 8)
    for row, t in enumerate(times):
        top, left = side + (2 * t + seed) % max(1, height // 2 - 2 * side), side + (3 * t) % max(1, width - 3 * side)
        frames[row, top : top + side, left : left + side] = (230, 60, 40)
        frames[row, height // 2 : height // 2 + side, side:-side] = (t % 256, 255 - t % 256, 128)
    frames[:, :side, :side], frames[:, :side, -side:] = CORNERS[0], CORNERS[1]
    frames[:, -side:, :side], frames[:, -side:, -side:] = CORNERS[2], CORNERS[3]
    return frames


def step_of_frame(frames: np.ndarray) -> np.ndarray:
    """Return the step (modulo 256) that fake frames uint8 [..., h, w, 3] encode."""
    height, width = frames.shape[-3:-1]
    return frames[..., height // 2 + max(2, height // 8) // 2, width // 2, 0].astype(int)


def step_of_row(rows: np.ndarray) -> np.ndarray:
    """Return the step that fake states or actions [..., D] encode."""
    return np.rint(rows[..., 0] * 100).astype(int)


def fake_store(
    path: str | Path, lengths: Sequence[int], *, spec: StoreSpec | None = None, first_seed: int = 0, success=None
) -> EpisodeStore:
    """Write a store with one episode per length, seeds counting up from ``first_seed``; ``success`` gives each one's verdict (all 1)."""
    store = EpisodeStore.create(path, spec or fake_spec())
    verdicts = [1.0] * len(lengths) if success is None else success
    for i, (length, verdict) in enumerate(zip(lengths, verdicts, strict=True)):
        store.append(
            fake_episode(store.spec, length, first_seed + i, success=float(verdict), kind="demo" if success is None else "rollout")
        )
    return store
