"""The small interfaces that parts meet at. Nothing to inherit: a class that has these members fits.

Shapes use the letters of robowm/types.py. Randomness is always an argument: one ``numpy.random.Generator`` per environment, so that an
episode's outcome does not depend on which other episodes run beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from robowm.types import Obs, Score, SourceKind, Steps

if TYPE_CHECKING:
    from robowm.types import ClipBatch


@runtime_checkable
class Env(Protocol):
    """N environments side by side: a simulator, a robot (N = 1) or a world model."""

    n: int  # most environments that run side by side
    fps: float  # control steps per second
    task_name: str  # "tabletop/pick_place"

    def reset(self, seeds: Sequence[int]) -> Obs:
        """Start ``len(seeds) <= n`` episodes; the start state is a function of the seed alone. Returns K = 1 rows."""
        ...

    def goal_holds(self) -> np.ndarray:
        """Return bool [N]: the goal holds right now. False where nobody can judge (robot, imagination)."""
        ...

    def step(self, actions: np.ndarray, active: np.ndarray) -> Steps:
        """Apply ``actions`` f32 [N, H, A], H in a row, where ``active`` bool [N]; inactive environments stand still (valid False)."""
        ...


@runtime_checkable
class Described(Protocol):
    """An Env that says what its episodes depend on beside seeds, so that a folder of other ones is not taken for them."""

    settings: Mapping[str, Any]  # JSON

    def spec(self) -> Mapping[str, Any]:
        """Return the fields of data/spec.StoreSpec: cameras, names, fps, kind of action."""
        ...


@runtime_checkable
class Fitted(Protocol):
    """A Policy that was made for one kind of environment."""

    def check(self, spec: Mapping[str, Any]) -> None:
        """Raise UserError unless ``spec`` (``Described.spec()``) is what it was made for."""
        ...


@runtime_checkable
class Rewindable(Protocol):
    """An Env whose exact state can be saved and restored (simulators)."""

    def get_state(self) -> np.ndarray:
        """Return f64 [N, D]."""
        ...

    def set_state(self, states: np.ndarray) -> Obs:
        """Restore f64 [N, D] and return the observation there, K = 1 rows."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Chooses H actions at a time. Holds no episode state of its own: that lives in ``memory``."""

    name: str  # fingerprint of a checkpoint, or the import path of a scripted policy

    def start(self, n: int) -> Any:
        """Return the memory (past observations, a phase, a cache) of n fresh episodes."""
        ...

    def act(self, obs: Obs, memory: Any, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, Any]:
        """Map all rows seen since the last call (``obs``, K rows) to actions f32 [N, H, A] and the new memory."""
        ...


@runtime_checkable
class Denoiser(Protocol):
    """A policy whose sampler can be guided."""

    def encode(self, obs: Obs, memory: Any) -> Any: ...

    def x0(self, x_t: Any, t: Any, context: Any) -> Any:
        """Return the clean estimate of the action chunk at noise level t."""
        ...


@runtime_checkable
class Tells(Protocol):
    """A Policy that says after each chunk who was in control, and whatever else is worth keeping beside the episode."""

    kind: SourceKind  # of the episodes that it makes

    def told(self, memory: Any) -> Mapping[str, np.ndarray]:
        """Return arrays [N, ...] about the chunk just given: "controller" int8 [N], values of types.Controller, and others.

        Where there is "over" bool [N], an episode ends before the chunk just given.
        """
        ...


class RollMemory(Protocol):
    """What a world model is conditioned on, of N episodes; its size does not grow with their length."""

    def take(self, index: np.ndarray) -> Any:
        """Return the memory of the episodes ``index`` int [M]."""
        ...

    def put(self, index: np.ndarray, other: Any) -> Any:
        """Return this memory with the episodes ``index`` int [M] replaced by the M of ``other``."""
        ...


@runtime_checkable
class WorldModel(Protocol):
    """Predicts what a camera and the proprioception would show. Constant cost per chunk."""

    name: str  # fingerprint of the checkpoint
    chunk: int  # H frames are predicted at a time
    cameras: Mapping[str, tuple[int, int]]  # {camera: (height, width)} that it predicts

    def start(self, obs: Obs) -> RollMemory:
        """Return the memory after the observations ``obs`` (K >= 1 real rows)."""
        ...

    def predict(self, memory: RollMemory, actions: np.ndarray, rngs: Sequence[np.random.Generator]) -> tuple[Obs, RollMemory]:
        """Map actions f32 [N, H, A] with H <= chunk to the H rows that follow them, and the new memory."""
        ...


@runtime_checkable
class Reward(Protocol):
    """Scores a clip per step; fidelity rewards need the true clip as ``reference``."""

    def __call__(self, clip: ClipBatch, reference: ClipBatch | None = None) -> Score: ...
