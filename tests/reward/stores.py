"""A store of tiny episodes whose goal can be seen: a bright square that has arrived on the right."""

from __future__ import annotations

import numpy as np

from robowm.data.store import EpisodeStore, StoreSpec
from robowm.types import Controller, Episode, Source

SIDE, STEPS = 16, 12
SPEC = StoreSpec(
    cameras={"external": (SIDE, SIDE), "wrist": (SIDE, SIDE)},
    state_names=["x"],
    action_names=["x"],
    environment_state_names=None,
    fps=10.0,
    action_kind="absolute",
)


def episode(seed: int, kind: str = "rollout", succeeds: bool | None = None) -> Episode:
    """Even seeds arrive at step 6 to 9 and stay; odd seeds stop half-way."""
    rng = np.random.default_rng(seed)
    succeeds = seed % 2 == 0 if succeeds is None else succeeds
    arrival = int(rng.integers(6, 10))
    goal, top = (12, int(rng.integers(0, 12))) if succeeds else (7, int(rng.integers(0, 12)))
    x = np.round(np.minimum(np.arange(STEPS + 1) / arrival, 1) * goal).astype(int)
    frames = np.zeros((STEPS + 1, SIDE, SIDE, 3), np.uint8) + rng.integers(0, 40, (STEPS + 1, SIDE, SIDE, 3), dtype=np.uint8)
    for t in range(STEPS + 1):
        frames[t, top : top + 4, x[t] : x[t] + 4] = (220, 60, 60)
    reward = (x[1:] == 12).astype(np.float32)
    imagined = kind == "imagined"
    return Episode(
        frames={"external": frames, "wrist": frames[:, :, ::-1].copy()},
        state=x[:, None].astype(np.float32),
        action=x[1:, None].astype(np.float32),
        reward=np.zeros_like(reward) if imagined else reward,
        controller=np.full(STEPS, Controller.POLICY, np.int8),
        segment=np.zeros(STEPS, np.int32),
        task="move right",
        fps=10.0,
        source=Source(kind, seed, "fake.policy"),
        success=float("nan") if imagined else float(reward.any()),
        judged_by="" if imagined else "simulator",
    )


def make_store(path, seeds, **options) -> EpisodeStore:
    store = EpisodeStore.create(path, SPEC)
    for seed in seeds:
        store.append(episode(seed, **options))
    return store
