"""What a frozen policy's encoder says of one moment, as a vector of two named blocks.

    N moments, D entries of a latent = seen + felt, K rows that the policy looks at

``seen`` holds every camera's features (each layer-normalised without learned parameters, so that no view drowns another), or the
simulator's truth for a state policy; ``felt`` is the normalised proprioception. As in ReGuide (arXiv 2606.28939), section "latent
dynamics", whose learned embedding of proprioception is left out: distances are then in units that do not change with training.

Numbers that are not learned features are cut off at +-FAR: a dimension that hardly moves in the demonstrations (an object's tilt) is
normalised so sharply that one toppled object would outweigh everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.policy.lerobot import DenoisingAdapter, Recent, load_policy
from robowm.types import Episode

STATE = "state"
FAR = 3.0  # demonstrations lie in -1 to 1, or within a few standard deviations


@dataclass(frozen=True)
class Latents:
    """The encoder of ``policy``, frozen."""

    policy: DenoisingAdapter

    @property
    def _blocks(self) -> dict[str, list[int]]:
        return self.policy.family.blocks(self.policy.model)

    @property
    def seen(self) -> int:
        """Length of the first block; the rest is ``felt``."""
        return sum(len(entries) for name, entries in self._blocks.items() if name != STATE)

    @property
    def size(self) -> int:
        """D."""
        return sum(map(len, self._blocks.values()))

    def of_context(self, context: Any) -> Tensor:
        """Return latents f32 [N, D] of what the policy's denoiser is conditioned on, at N moments."""
        seen, features = [], self.policy.family.features(context)
        for name, entries in self._blocks.items():
            if name != STATE:
                part = features[:, entries]
                seen.append(F.layer_norm(part, part.shape[-1:]) if name.startswith("image/") else part.clamp(-FAR, FAR))
        return torch.cat([*seen, features[:, self._blocks[STATE]].clamp(-FAR, FAR)], -1).float()

    @torch.no_grad()
    def of_episode(self, episode: Episode) -> np.ndarray:
        """Return the latent of each of an episode's moments, f32 [T + 1, D]; the first row stands for those before it."""
        policy = self.policy
        length = len(episode) + 1
        rows = policy.family.offsets(policy.model.config)[0]
        window = np.maximum(np.arange(length)[:, None] + np.asarray(rows), 0)  # [T + 1, K]
        truth = episode.environment_state[window] if policy.inputs.environment_state else None
        frames = {camera: episode.frames[camera][window] for camera in policy.inputs.cameras}
        memory = Recent(frames, episode.state[window], truth, (episode.task,) * length)
        found = [self.of_context(policy.family.context(policy.model, policy.batch(memory, block))) for block in policy.blocks(length)]
        return torch.cat(found)[:length].cpu().numpy()

    def of_store(self, store: EpisodeStore) -> list[np.ndarray]:
        """Return ``of_episode`` of every episode of ``store``, whose data must be what the policy was trained on."""
        self.policy.check(store.spec.to_json())
        cameras = list(self.policy.inputs.cameras)
        return [self.of_episode(store.episode(i, cameras=cameras)) for i in range(len(store))]


def load_denoiser(path: Path | str, **options: Any) -> DenoisingAdapter:
    """Load a policy whose context is known by name, as guidance and critics need it; see ``load_policy``."""
    policy = load_policy(path, **options)
    if not isinstance(policy, DenoisingAdapter):
        raise UserError(f"{path} is a policy of type {policy.model.config.type!r}; guidance and critics know diffusion and smolvla")
    return policy
