"""Configuration of ``robowm_diffusion``."""

from __future__ import annotations

from dataclasses import dataclass

from lerobot.configs import PreTrainedConfig
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig


@PreTrainedConfig.register_subclass("robowm_diffusion")
@dataclass
class RobowmDiffusionConfig(DiffusionConfig):
    """DiffusionConfig with a small image encoder and denoiser; its settings of ResNet and U-Net (vision_*, down_dims ...) are not used.

    Args:
        encoder_width: channels of the encoder's first layers.
        encoder_features: features per camera, of all observations together.
        shift: largest random move of a picture in training, as a share of its side (1 / 32: one pixel of 32).
        denoiser_width: width of the denoiser.
        denoiser_blocks: its residual blocks.
        indicator: it is conditioned on an indicator of improvement, see robowm/policy/indicator.py.
        indicator_guidance: how far beyond the unconditioned estimate it goes then, 1: not beyond the conditioned one (classifier-free
            guidance, Ho and Salimans 2022).
    """

    encoder_width: int = 32
    encoder_features: int = 128
    shift: float = 0.0
    denoiser_width: int = 256
    denoiser_blocks: int = 3
    indicator: bool = False
    indicator_guidance: float = 1.5

    horizon: int = 16
    n_action_steps: int = 8
    drop_n_last_frames: int = 0
    do_mask_loss_for_padding: bool = True
    pretrained_backbone_weights: str | None = None
    prediction_type: str = "sample"
    noise_scheduler_type: str = "DDIM"
    num_inference_steps: int | None = 8

    @property
    def chunk_size(self) -> int:
        """Actions of a plan that lie ahead, under the name that lerobot's sample weighting asks for."""
        return self.horizon - self.n_obs_steps + 1
