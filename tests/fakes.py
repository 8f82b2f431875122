"""Small deterministic stand-ins for tests alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robowm.data.fake import fake_episode, fake_spec
from robowm.data.store import EpisodeStore
from robowm.types import MASK, MASK_CHANNELS, Obs, Steps

COUNTER_SIZE = 8


class CounterEnv:
    """Frames, state and success all encode the step count, so an off-by-one is loud. Succeeds ``goal(seed)`` steps after the start."""

    fps = 10.0
    task_name = "fake/counter"

    def __init__(self, n: int = 3, goal=lambda seed: 5 + seed % 3):
        self.n, self._goal = n, goal

    def reset(self, seeds):
        self._seeds = np.array(seeds)
        self._t = np.zeros(len(seeds), int)
        return self._observe(self._t[:, None])

    def goal_holds(self):
        return self._t >= np.array([self._goal(s) for s in self._seeds])

    def step(self, actions, active):
        h = actions.shape[1]
        times = self._t[:, None] + np.where(active[:, None], np.arange(1, h + 1), 0)
        self._t = times[:, -1]
        success = times >= np.array([self._goal(s) for s in self._seeds])[:, None]
        valid = np.broadcast_to(active[:, None], times.shape).copy()
        return Steps(self._observe(times), success.astype(np.float32), success, np.zeros_like(success), valid)

    def _observe(self, times):
        frame = np.broadcast_to(times[..., None, None, None], (*times.shape, COUNTER_SIZE, COUNTER_SIZE, 3)).astype(np.uint8)
        return Obs({"external": frame}, times[..., None].astype(np.float32), None, tuple("count" for _ in self._seeds))


class NoisePolicy:
    """Draws H actions from each episode's own generator."""

    name = "fake.noise"

    def __init__(self, chunk: int = 4, action_dim: int = 2):
        self._chunk, self._dim = chunk, action_dim

    def start(self, n):
        return None

    def act(self, obs, memory, rngs):
        return np.stack([rng.standard_normal((self._chunk, self._dim)) for rng in rngs]).astype(np.float32), None


def masked_store(path, lengths, first_seed=0, unseen=0):
    """A store of fake episodes with masks: the object is the red square, the gripper the rest of the upper half.

    In the wrist camera the object is never seen in the first ``unseen`` episodes, and in no episode at odd steps.
    """
    store = EpisodeStore.create(path, fake_spec(dict.fromkeys(("external", "wrist", f"external{MASK}", f"wrist{MASK}"), (32, 32))))
    for i, length in enumerate(lengths):
        episode = fake_episode(store.spec, length, first_seed + i)
        frames = dict(episode.frames)
        for camera in ("external", "wrist"):
            square = (frames[camera] == (230, 60, 40)).all(-1)
            mask = np.zeros_like(frames[camera])
            mask[:, :16, :, MASK_CHANNELS["gripper"]] = 255 * ~square[:, :16]
            mask[..., MASK_CHANNELS["object"]] = 255 * square
            frames[camera + MASK] = mask
        hidden = slice(None) if i < unseen else slice(1, None, 2)
        frames[f"wrist{MASK}"][hidden, ..., MASK_CHANNELS["object"]] = 0
        store.append(replace(episode, frames=frames))
    return store
