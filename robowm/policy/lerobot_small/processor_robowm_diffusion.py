"""Processors of ``robowm_diffusion``: lerobot's default pipelines."""

from __future__ import annotations

from typing import Any

from lerobot.processor import make_default_pre_post_processors

from robowm.policy.lerobot_small.configuration_robowm_diffusion import RobowmDiffusionConfig


def make_robowm_diffusion_pre_post_processors(config: RobowmDiffusionConfig, dataset_stats: dict[str, dict[str, Any]] | None = None):
    """Return lerobot's pre- and post-processor for ``config``."""
    return make_default_pre_post_processors(config, dataset_stats)
