"""Policies that are told whether what they imitate was better than usual, and asked for better at work (RECAP, Amin et al. 2025).

B clips. An indicator is a number: UNKNOWN (nobody said so, or it was dropped), USUAL, BETTER. Where RECAP writes it into a vision-language
model's prompt, ``robowm_diffusion`` adds one learned vector of each to what its denoiser is conditioned on; all start at nought, so that a
policy which becomes conditioned acts as it did.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from robowm.errors import UserError
from robowm.policy.lerobot_small import RobowmDiffusionConfig

INDICATOR = "indicator"  # key of a batch, int64 [B]
UNKNOWN, USUAL, BETTER = 0, 1, 2
DROPPED = 0.3  # share of clips trained on without it, so that both can be asked for


def shown_indicator(improved: Tensor, generator: torch.Generator) -> Tensor:
    """Return the indicator int64 [B] of clips ``improved`` int64 [B] (1 better, 0 not, -1 unknown), three in ten dropped."""
    dropped = torch.rand(len(improved), generator=generator, device=improved.device) < DROPPED
    return torch.where(dropped, UNKNOWN, improved + USUAL)


def conditioned(model: nn.Module) -> nn.Module:
    """Return ``model`` as one that is conditioned on an indicator: the same where it is already, else a copy that acts as it did."""
    config = model.config
    if not isinstance(config, RobowmDiffusionConfig):
        raise UserError(f"a policy of type {config.type!r} takes no indicator of improvement; use robowm_diffusion, or other weights")
    if config.indicator:
        return model
    with torch.random.fork_rng(devices=[]):
        made = type(model)(replace(copy.deepcopy(config), indicator=True))
    missing = made.load_state_dict(model.state_dict(), strict=False).missing_keys
    assert missing == ["diffusion.indicator.weight"], missing
    return made
