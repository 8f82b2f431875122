"""lerobot's diffusion policies (``diffusion`` and ``robowm_diffusion``): per-step errors, conditioning, clean estimates, sampling."""

from __future__ import annotations

import torch
from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
from lerobot.utils.constants import ACTION, OBS_IMAGES
from torch import Tensor

from robowm.policy.ddim import clean_from_noise, ddim_scheduler, sample_ddim
from robowm.policy.lerobot_small import RobowmDiffusionConfig
from robowm.policy.steps import Adjust

SETTINGS = {  # of the stock type, where lerobot's own defaults do not fit short episodes, downloads, or a masked loss
    "n_obs_steps": 2,
    "horizon": 16,
    "n_action_steps": 8,
    "drop_n_last_frames": 0,
    "do_mask_loss_for_padding": True,
    "pretrained_backbone_weights": None,
    "use_group_norm": True,
    "noise_scheduler_type": "DDIM",
    "num_inference_steps": 10,
}


def offsets(config) -> tuple[list[int], list[int]]:
    """Return the offsets of observations [K] and actions [H] around the current step."""
    return config.observation_delta_indices, config.action_delta_indices


def context(policy: DiffusionPolicy, batch: dict[str, Tensor]) -> Tensor:
    """Return what the denoiser is conditioned on, f32 [B, D]."""
    if policy.config.image_features:
        batch = {**batch, OBS_IMAGES: torch.stack([batch[key] for key in policy.config.image_features], dim=-4)}
    return policy.diffusion._prepare_global_conditioning(batch)


def features(condition: Tensor) -> Tensor:
    """Return what a context says of the current moment and those before it, f32 [B, D]: all of it."""
    return condition


def blocks(policy: DiffusionPolicy) -> dict[str, list[int]]:
    """Return which entries of ``features`` show what at the current moment: "image/<camera>", "state", "environment_state".

    lerobot's own model lays out row after row of observations, state first in each; robowm's small one all states, then one summary of
    all rows for each camera.
    """
    config = policy.config
    names = [f"image/{key.removeprefix(OBS_IMAGES + '.')}" for key in config.image_features]
    state = config.robot_state_feature.shape[0]
    truth = config.env_state_feature.shape[0] if config.env_state_feature else 0
    small = isinstance(config, RobowmDiffusionConfig)
    per_camera = config.encoder_features if small else _stock_features(policy)
    sizes = {"state": state, **dict.fromkeys(names, per_camera), **({"environment_state": truth} if truth else {})}
    repeats = {name: config.n_obs_steps if small and not name.startswith("image/") else 1 for name in sizes}
    first = 0 if small else (config.n_obs_steps - 1) * sum(sizes.values())
    found = {}
    for name, size in sizes.items():
        newest = first + (repeats[name] - 1) * size
        found[name] = list(range(newest, newest + size))
        first += repeats[name] * size
    return found


def _stock_features(policy: DiffusionPolicy) -> int:
    """Return the length of one camera's features in lerobot's own model."""
    if not policy.config.image_features:
        return 0
    encoder = policy.diffusion.rgb_encoder
    return (encoder[0] if policy.config.use_separate_rgb_encoder_per_camera else encoder).feature_dim


def errors(policy: DiffusionPolicy, batch: dict[str, Tensor], generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the squared error of the denoiser's prediction f32 [B, H], the mean over action dimensions, and no further terms.

    DDPM's simple loss (Ho et al. 2020, eq. 14) before it is averaged; the target is the noise or the clean chunk (``prediction_type``).
    """
    model, clean = policy.diffusion, batch[ACTION]
    noise = torch.randn(clean.shape, generator=generator, device=clean.device)
    t = torch.randint(model.noise_scheduler.config.num_train_timesteps, (len(clean),), generator=generator, device=clean.device)
    noised = model.noise_scheduler.add_noise(clean, noise, t)
    prediction = model.unet(noised, t, global_cond=context(policy, batch)).float()
    target = noise if policy.config.prediction_type == "epsilon" else clean
    return (prediction - target).pow(2).mean(-1), {}


def x0(policy: DiffusionPolicy, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
    """Return the clean estimate [B, H, A] (normalised) of the noised chunk ``x_t`` at noise steps ``t`` int64 [B]."""
    prediction = policy.diffusion.unet(x_t, t, global_cond=condition).float()
    if isinstance(policy.config, RobowmDiffusionConfig) and policy.config.indicator and policy.config.indicator_guidance != 1:
        plain = policy.diffusion.unet(x_t, t, global_cond=policy.diffusion.without_indicator(condition)).float()
        prediction = plain + policy.config.indicator_guidance * (prediction - plain)
    if policy.config.prediction_type == "epsilon":
        return clean_from_noise(x_t, prediction, t, policy.diffusion.noise_scheduler.alphas_cumprod)
    return prediction


def noise_shape(config) -> tuple[int, int]:
    """Return the shape [H, A] of one episode's sampling noise."""
    return config.horizon, config.action_feature.shape[0]


def own_steps(config) -> int | None:
    """Return the number of sampling steps that the checkpoint asks for."""
    return config.num_inference_steps


def chunk(policy: DiffusionPolicy, batch: dict[str, Tensor], noise: Tensor, steps: int | None) -> Tensor:
    """Return the normalised actions [B, n_action_steps, A] from the current step on; ``steps`` of DDIM, None: the checkpoint's own."""
    return ahead(policy.config, sampled(policy, context(policy, batch), noise, steps))[:, : policy.config.n_action_steps]


def sampled(policy: DiffusionPolicy, condition: Tensor, noise: Tensor, steps: int | None, adjust: Adjust | None = None) -> Tensor:
    """Return the whole normalised chunk [B, H, A] for contexts ``condition`` [B, D]; ``adjust`` guides the sampler (see ddim.py)."""
    scheduler = ddim_scheduler(policy.diffusion.noise_scheduler, steps or policy.diffusion.num_inference_steps)
    return sample_ddim(lambda x_t, t: x0(policy, x_t, t, condition), noise, scheduler, adjust)


def ahead(config, plan: Tensor) -> Tensor:
    """Return the actions of a whole chunk [B, H, A] that lie ahead: its first is that of the oldest row the policy looks at."""
    return plan[:, config.n_obs_steps - 1 :]
