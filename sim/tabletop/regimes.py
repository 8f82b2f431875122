"""Which rows of an episode are which: the hand moves freely, touches the object, carries it; and where no camera sees the object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robowm.errors import UserError
from robowm.types import MASK, MASK_CHANNELS, Episode
from sim.tabletop.task import ENVIRONMENT_STATE_NAMES


@dataclass(frozen=True)
class Regimes:
    """Maps an episode to {"free" | "contact" | "grasped": bool [T+1]}; every row is in exactly one.

    With ``camera`` also "occluded": rows in which its mask, the camera "<camera>_mask" of a store recorded with env.masks=true, has no
    pixel that shows the object.
    """

    camera: str | None = None
    near: float = 0.045  # metres from the pinch point to the object's centre within which they may touch
    moved: float = 1e-3  # metres that the object moves in a step when something moves it
    lifted: float = 0.01  # metres above where the object began

    def __call__(self, episode: Episode) -> dict[str, np.ndarray]:
        """Read the simulator's truth f32 [T+1, >= 15] and the hand's pose f32 [T+1, 5]."""
        truth = episode.environment_state
        if truth is None or truth.shape[1] < len(ENVIRONMENT_STATE_NAMES):
            found = None if truth is None else truth.shape[1]
            raise UserError(
                f"the tabletop's regimes need its environment state of at least {len(ENVIRONMENT_STATE_NAMES)} numbers, found {found}"
            )
        place = truth[:, :3]
        near = np.linalg.norm(place - episode.state[:, :3], axis=1) < self.near
        moving = np.linalg.norm(np.diff(place, axis=0, prepend=place[:1]), axis=1) > self.moved
        grasped = near & (place[:, 2] - place[0, 2] > self.lifted)
        contact = (near | moving) & ~grasped
        masks = {"free": ~(contact | grasped), "contact": contact, "grasped": grasped}
        if self.camera is None:
            return masks
        if (name := self.camera + MASK) not in episode.frames:
            raise UserError(
                f"regimes.camera={self.camera} tells occluded frames by camera {name!r}, found {', '.join(episode.frames) or 'no camera'}; "
                "record with env.masks=true or leave regimes.camera out"
            )
        return {**masks, "occluded": ~episode.frames[name][..., MASK_CHANNELS["object"]].any((1, 2))}
