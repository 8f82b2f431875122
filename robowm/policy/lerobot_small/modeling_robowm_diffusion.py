"""Model of ``robowm_diffusion``: DiffusionPolicy whose encoder and denoiser are robowm's small ones."""

from __future__ import annotations

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from lerobot.policies.diffusion.modeling_diffusion import DiffusionModel, DiffusionPolicy
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION, OBS_ENV_STATE, OBS_IMAGES, OBS_STATE
from torch import Tensor, nn

from robowm.policy.denoiser import ChunkDenoiser
from robowm.policy.encoder import ImageEncoder, random_shift
from robowm.policy.lerobot_small.configuration_robowm_diffusion import RobowmDiffusionConfig


class RobowmDiffusionModel(DiffusionModel):
    """Same members as DiffusionModel (rgb_encoder, unet, noise_scheduler); conditioned on all states, all pictures, all truth."""

    def __init__(self, config: RobowmDiffusionConfig) -> None:
        nn.Module.__init__(self)  # the parent would build a ResNet and a U-Net
        self.config = config
        context = config.robot_state_feature.shape[0] * config.n_obs_steps
        if config.image_features:
            size = next(iter(config.image_features.values())).shape[1:]
            self.rgb_encoder = ImageEncoder(
                config.n_obs_steps, len(config.image_features), size, config.encoder_width, config.encoder_features
            )
            context += len(config.image_features) * config.encoder_features
        if config.env_state_feature:
            context += config.env_state_feature.shape[0] * config.n_obs_steps
        if config.indicator:
            self.indicator = nn.Embedding(3, context)
            nn.init.zeros_(self.indicator.weight)
        action_dim = config.action_feature.shape[0]
        self.unet = ChunkDenoiser(config.horizon, action_dim, context, config.denoiser_width, config.denoiser_blocks)
        self.noise_scheduler = DDIMScheduler(
            num_train_timesteps=config.num_train_timesteps,
            beta_start=config.beta_start,
            beta_end=config.beta_end,
            beta_schedule=config.beta_schedule,
            clip_sample=config.clip_sample,
            clip_sample_range=config.clip_sample_range,
            prediction_type=config.prediction_type,
            timestep_spacing="trailing",  # few steps must start at the noisiest level (Lin et al. 2024, section 3.3)
        )
        self.num_inference_steps = config.num_inference_steps or config.num_train_timesteps

    def _prepare_global_conditioning(self, batch: dict[str, Tensor]) -> Tensor:
        parts = [batch[OBS_STATE].flatten(1)]
        if self.config.image_features:
            images = random_shift(batch[OBS_IMAGES], self.config.shift) if self.training else batch[OBS_IMAGES]
            parts.append(self.rgb_encoder(images))
        if self.config.env_state_feature:
            parts.append(batch[OBS_ENV_STATE].flatten(1))
        condition = torch.cat(parts, dim=-1)
        if not self.config.indicator:
            return condition
        asked = batch.get("indicator", torch.full((len(condition),), 2, device=condition.device))  # at work: for better than usual
        return condition + self.indicator(asked)

    def without_indicator(self, condition: Tensor) -> Tensor:
        """Return the condition [B, D] of somebody who was asked for better as that of somebody who was told nothing."""
        return condition - self.indicator.weight[2] + self.indicator.weight[0]


class RobowmDiffusionPolicy(DiffusionPolicy):
    """lerobot's DiffusionPolicy around RobowmDiffusionModel."""

    config_class = RobowmDiffusionConfig
    name = "robowm_diffusion"

    def __init__(self, config: RobowmDiffusionConfig, **_) -> None:
        PreTrainedPolicy.__init__(self, config)
        config.validate_features()
        self._queues = None
        self.diffusion = RobowmDiffusionModel(config)
        self.reset()

    def get_optim_params(self):
        """Return what lerobot's training optimises, laid out so that it can save its optimiser's state (safetensors wants it in order)."""
        self.to(memory_format=torch.contiguous_format)
        return super().get_optim_params()

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> tuple[Tensor, None]:
        """Return the loss as lerobot's training asks for it: a scalar, or with ``reduction="none"`` f32 [B], each over its valid steps."""
        if self.config.image_features:
            batch = {**batch, OBS_IMAGES: torch.stack([batch[key] for key in self.config.image_features], dim=-4)}
        model, clean = self.diffusion, batch[ACTION]
        noise = torch.randn_like(clean)
        t = torch.randint(model.noise_scheduler.config.num_train_timesteps, (len(clean),), device=clean.device)
        prediction = model.unet(model.noise_scheduler.add_noise(clean, noise, t), t, global_cond=model._prepare_global_conditioning(batch))
        target = noise if self.config.prediction_type == "epsilon" else clean
        valid = ~batch["action_is_pad"]
        errors = (prediction - target).pow(2).mean(-1) * valid
        if reduction == "none":
            return errors.sum(1) / valid.sum(1).clamp_min(1), None
        return errors.sum() / valid.sum().clamp_min(1), None
