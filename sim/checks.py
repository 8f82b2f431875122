"""What environments and scripts check at their door, one line each. N episodes, H actions of A numbers, D numbers of a saved state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robowm.errors import UserError, nearest
from robowm.types import Obs


def check_sizes(n: int, workers: int, image_size: int, smallest: int, largest: int) -> None:
    """Refuse an impossible number of episodes, processes or pixels."""
    if not smallest <= image_size <= largest:
        raise UserError(f"image_size={image_size}; choose {smallest} to {largest}")
    if n < 1 or workers < 1:
        raise UserError(f"n={n}, workers={workers}; both must be at least 1")


def check_cameras(where: str, cameras: Sequence[str], known: Sequence[str]) -> None:
    """Refuse the first of ``cameras`` that ``where`` lacks."""
    for name in cameras:
        if name not in known:
            raise UserError(f"no camera {name!r} in {where}: {nearest(name, known)}")


def check_seeds(task: str, seeds: Sequence[int], n: int) -> None:
    """Refuse no seeds, or more than the environment has episodes."""
    if not 0 < len(seeds) <= n:
        raise UserError(f"{task}: {len(seeds)} seeds for an environment with n={n}; pass 1 to {n}")


def check_actions(task: str, actions: np.ndarray, active: np.ndarray, running: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return actions f32 [running, H, width] and active bool [running]; refuse other shapes and what an active episode cannot do."""
    actions, active = np.asarray(actions, np.float32), np.asarray(active, bool)
    if actions.ndim != 3 or actions.shape[::2] != (running, width) or not actions.shape[1]:
        raise UserError(f"{task}: actions have shape {actions.shape}, expected [{running}, H >= 1, {width}]")
    if not np.isfinite(actions[active]).all():
        raise UserError(f"{task}: actions hold NaN or infinity for episode {np.argwhere(~np.isfinite(actions))[0][0]}")
    return actions, active


def check_states(task: str, states: np.ndarray, n: int, size: int) -> np.ndarray:
    """Return states f64 [1..n, size]; refuse other shapes."""
    states = np.asarray(states, np.float64)
    if states.ndim != 2 or states.shape[1] != size or not 0 < len(states) <= n:
        raise UserError(f"{task}: states have shape {states.shape}, expected [1..{n}, {size}]")
    return states


def truth_of(obs: Obs, name: str) -> np.ndarray:
    """Return the last environment state [N, E] for the script ``name``; refuse observations without one."""
    if obs.environment_state is None:
        raise UserError(f"{name} needs simulator truth, and this environment shows none; use a policy that looks at pictures")
    return obs.environment_state[:, -1]
