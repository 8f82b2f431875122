"""Euler sampling of a flow between data and noise, written once over any velocity.

x_t = (1 - t) x0 + t eps and v = eps - x0 (robowm/diffusion/flow.py), from t = 1, noise, to t = 0, as lerobot's ``euler_integrate``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robowm.diffusion.flow import x0_from_velocity
from robowm.policy.steps import Adjust, Denoise, Step


def sample_flow(velocity: Denoise, noise: Tensor, steps: int, adjust: Adjust | None = None) -> Tensor:
    """Return the chunk [B, H, A] that ``noise`` [B, H, A] becomes in ``steps`` equal steps; ``adjust`` guides each before it is taken.

    ``velocity`` is asked at times f32 [B], the last of which is 1 / ``steps``. A guide moves x_t to x' and the clean estimate x0 to x0';
    the step then takes v' = (x' - x0') / t, written as a change of v so that a guide that moves nothing changes no bit.
    """
    x, length = noise, -1 / steps
    for i in range(steps):
        t = 1 + i * length
        times = torch.full((len(x),), t, dtype=torch.float32, device=x.device)
        v = velocity(x, times)
        if adjust is not None:
            clean = x0_from_velocity(x, v, times)
            step = Step(t, t, 1 - t, lambda y, times=times: x0_from_velocity(y, velocity(y, times), times))
            moved, wanted = adjust(x, step, clean)
            v = v + ((moved - x) - (wanted - clean)) / t
            x = moved
        x = x + length * v
    return x
