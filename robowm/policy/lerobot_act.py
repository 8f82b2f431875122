"""lerobot's ACT: per-step errors and chunks."""

from __future__ import annotations

import torch
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.utils.constants import ACTION, OBS_IMAGES
from torch import Tensor

SETTINGS = {
    "chunk_size": 16,
    "n_action_steps": 8,
    "pretrained_backbone_weights": None,
}


def offsets(config) -> tuple[list[int], list[int]]:
    """Return the offsets of observations [K] and actions [H] around the current step."""
    return [0], config.action_delta_indices


def errors(policy: ACTPolicy, batch: dict[str, Tensor], generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
    """Return absolute error plus ``kl_weight`` times the latent's divergence, f32 [B, H], and the two apart, unweighted.

    A clip's divergence stands at each of its steps, so that masks and weights of steps cover it too (Zhao et al. 2023, eq. 3).
    """
    actions, (mean, log_variance) = policy.model(_without_time(policy, batch))
    absolute = (actions.float() - batch[ACTION]).abs().mean(-1)
    if mean is None:
        return absolute, {"absolute": absolute}
    divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(-1).float()
    divergence = divergence[:, None].expand_as(absolute)
    return absolute + policy.config.kl_weight * divergence, {"absolute": absolute, "divergence": divergence}


def noise_shape(config) -> None:
    """ACT acts without noise."""
    return None


def own_steps(config) -> None:
    """ACT acts at once."""
    return None


def chunk(policy: ACTPolicy, batch: dict[str, Tensor], noise: None, steps: None) -> Tensor:
    """Return the normalised actions [B, n_action_steps, A] from the current step on."""
    return policy.model(_without_time(policy, batch))[0][:, : policy.config.n_action_steps]


def _without_time(policy: ACTPolicy, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """ACT looks at one observation: [B, 1, ...] becomes [B, ...], pictures a list over cameras."""
    batch = {key: value.squeeze(1) if key.startswith("observation.") else value for key, value in batch.items()}
    if policy.config.image_features:
        batch[OBS_IMAGES] = [batch[key] for key in policy.config.image_features]
    return batch
