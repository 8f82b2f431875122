"""The nouns that every layer shares. Numpy at the boundary to simulators, robots and disk; torch inside learners.

Letters used in shapes everywhere:
    N envs (or episodes side by side), B clips, T steps, K observation rows, H chunk of actions, A action, S state, E simulator state,
    V cameras, h w image height and width.

Time runs as ``obs[t] --action[t]--> obs[t+1]``, so an episode of T steps has T+1 observation rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

MASK = "_mask"  # ends the name of a camera that shows which pixels of the camera before it are what
MASK_CHANNELS = {"gripper": 0, "object": 1, "target": 2}  # 255 where it is seen, else 0

SourceKind = Literal["demo", "rollout", "guided", "imagined", "human"]


def pictures(cameras: Iterable[str]) -> list[str]:
    """Return the names that are pictures: all but masks, which nothing looks at that was not told to."""
    return [name for name in cameras if not name.endswith(MASK)]


class Controller(IntEnum):
    """Who chose the action of a step. Recorded while it happens, never inferred; constant within a segment."""

    DEMO = 0
    POLICY = 1
    HUMAN_RECOVERY = 2
    HUMAN_CORRECTION = 3
    GUIDED = 4


@dataclass(frozen=True)
class Obs:
    """What N environments showed during the last K steps, most recent row last (K = 1 after a reset, H after a chunk)."""

    # {camera: uint8 [N, K, h, w, 3]}, RGB, row 0 is the top of the picture; the last R < K rows alone where only those were drawn
    frames: dict[str, np.ndarray]
    state: np.ndarray  # f32 [N, K, S], proprioception only
    environment_state: np.ndarray | None  # f32 [N, K, E], simulator truth; None on robots and in imagination
    task: tuple[str, ...]  # N sentences

    def __len__(self) -> int:
        return len(self.state)


@dataclass(frozen=True)
class Steps:
    """The outcome of one chunk of H actions in N environments. ``obs`` has K = H rows: row k follows action k."""

    obs: Obs
    reward: np.ndarray  # f32 [N, H]; simulators give 1 where the goal holds after the step, else 0
    success: np.ndarray  # bool [N, H], the goal holds after the step; always False where nobody can judge (robot, imagination)
    terminated: np.ndarray  # bool [N, H], the environment cannot go on (not used for time limits)
    valid: np.ndarray  # bool [N, H], False for steps that were not taken: inactive env, or after termination


@dataclass(frozen=True)
class Source:
    """Where an episode comes from; enough to find every input again."""

    kind: SourceKind
    seed: int  # start-state seed
    policy: str | None = None  # fingerprint of the policy, or the expert's import path
    world_model: str | None = None  # fingerprint, for imagined episodes
    round: int = 0  # flywheel round

    def to_json(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Episode:
    """One recorded episode, immutable. Returns, advantages, weights and labels are sidecars, never fields."""

    frames: dict[str, np.ndarray]  # {camera: uint8 [T+1, h, w, 3]}
    state: np.ndarray  # f32 [T+1, S]
    action: np.ndarray  # f32 [T, A]
    reward: np.ndarray  # f32 [T]
    controller: np.ndarray  # int8 [T], values of Controller
    segment: np.ndarray  # int32 [T], counts up by one at each change of controller
    task: str
    fps: float
    source: Source
    success: float = float("nan")  # 1 / 0 / nan = not judged
    judged_by: str = ""  # "simulator", "human", a classifier's fingerprint, or "" when not judged
    terminated: bool = False  # False at the end = cut off
    environment_state: np.ndarray | None = None  # f32 [T+1, E]

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True)
class ClipRef:
    """An address that travels with the batch: steps ``start`` to ``stop`` (exclusive) of one episode of one store."""

    store: str
    episode: int
    start: int
    stop: int


@dataclass(frozen=True)
class ClipBatch:
    """B clips as tensors. Observation rows and action rows are chosen by offsets from an anchor step, see data/clips.py."""

    frames: dict[str, Tensor]  # {camera: uint8 [B, K, h, w, 3]}
    state: Tensor  # f32 [B, K, S]
    environment_state: Tensor | None  # f32 [B, K, E]
    obs_valid: Tensor  # bool [B, K], False where the offset fell outside the episode (the edge row is repeated)
    action: Tensor  # f32 [B, H, A]
    reward: Tensor  # f32 [B, H]
    controller: Tensor  # int64 [B, H]
    action_valid: Tensor  # bool [B, H], False = padding, must change neither loss nor gradient
    weight: Tensor  # f32 [B, H], per-step loss weights (ones unless a sidecar gives others)
    success: Tensor  # f32 [B], the episode's verdict, nan = not judged
    task: tuple[str, ...]  # B sentences
    refs: tuple[ClipRef, ...] = field(default=())
    improved: Tensor | None = None  # int64 [B], 1 = better than usual from the anchor on, 0 = not, -1 = not known; None: nobody said so


@dataclass(frozen=True)
class Score:
    """A reward per step with its raw terms, so that weights can be read off the log."""

    total: Tensor  # f32 [B, T]
    terms: dict[str, Tensor]  # {name: f32 [B, T]}, unweighted


@dataclass(frozen=True)
class EvalRow:
    """One measured number with its 95 % interval (results/*.json)."""

    task: str
    arm: str
    metric: str
    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class EvalPair:
    """A paired difference a - b with its 95 % interval, the shares of its ``n`` starts won and lost, and p of one against the other."""

    task: str
    a: str
    b: str
    metric: str
    diff: float
    low: float
    high: float
    n: int
    wins: float
    losses: float
    p: float | None = None  # exact two-sided sign test, ties left out; None in files written before it was kept
