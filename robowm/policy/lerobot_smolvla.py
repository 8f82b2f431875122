"""lerobot's SmolVLA (Shukor et al. 2025, arXiv 2506.01844): per-step errors, contexts, clean estimates, sampling.

A vision-language model reads pictures, the task's sentence and proprioception once; an action expert that attends to it turns noise into a
plan by flow matching: x_t = t eps + (1 - t) a, v = eps - a. lerobot's own classes do the work, here their parts are only put together.
Needs the extra ``vla``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from lerobot.configs import NormalizationMode
from lerobot.policies.common.vla_utils import make_att_2d_masks
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from lerobot.processor import NewLineTaskProcessorStep, TokenizerProcessorStep, TransitionKey, create_transition
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS, OBS_STATE
from torch import Tensor

from robowm.diffusion.flow import x0_from_velocity
from robowm.errors import UserError
from robowm.policy.flow import sample_flow
from robowm.policy.lerobot_batch import IMAGE_MEAN, IMAGE_STD, TASK
from robowm.policy.steps import Adjust

if TYPE_CHECKING:
    from transformers import DynamicCache

SETTINGS = {  # what its pretrained weights expect
    "normalization_mapping": {
        "VISUAL": NormalizationMode.IDENTITY,
        "STATE": NormalizationMode.MEAN_STD,
        "ACTION": NormalizationMode.MEAN_STD,
    },
}


@dataclass(frozen=True)
class Context:
    """What the action expert attends to, of B moments, and a summary of it."""

    features: Tensor  # f32 [B, D], see ``blocks``
    mask: Tensor  # bool [B, L], False where the prefix is padding
    cache: DynamicCache  # keys and values of the prefix in every layer


def construct(config: SmolVLAConfig) -> SmolVLAPolicy:
    """Return lerobot's policy for ``config``, in float32: neither Adam nor an average of weights moves in the VLM's own bfloat16.

    Raises UserError for settings that this module does not serve.
    """
    if not config.image_features:
        raise UserError("SmolVLA looks at pictures; name policy.cameras, and leave environment_state to state policies")
    unserved = config.adapt_to_pi_aloha or config.rtc_config is not None or config.prefix_length > 0 or config.empty_cameras
    if unserved or not config.use_cache:
        raise UserError(
            "SmolVLA's adapt_to_pi_aloha, rtc_config, prefix_length, empty_cameras and use_cache=false are not served; leave them unset"
        )
    for what, feature, most in (
        ("action", config.action_feature, config.max_action_dim),
        ("state", config.robot_state_feature, config.max_state_dim),
    ):
        if feature.shape[0] > most:
            raise UserError(f"the {what} has {feature.shape[0]} numbers, policy.max_{what}_dim={most}; raise it for a fresh SmolVLA")
    config.load_vlm_weights &= config.pretrained_path is None  # a checkpoint brings them itself
    try:
        policy = SmolVLAPolicy(config).float()
    except ImportError as error:
        raise UserError("policy smolvla needs more packages: pip install -e '.[vla]'") from error
    config.load_vlm_weights = False
    return policy


def offsets(config: SmolVLAConfig) -> tuple[list[int], list[int]]:
    """Return the offsets of observations [K] and actions [H] around the current step."""
    return config.observation_delta_indices, config.action_delta_indices


def context(policy: SmolVLAPolicy, batch: dict[str, Any]) -> Context:
    """Return what the expert attends to. The sentence is padded to a fixed length, so that a row does not depend on those beside it."""
    model, config = policy.model, policy.config
    images, image_masks, tokens, token_mask, state = _inputs(policy, batch)
    embedded, mask, attention = model.embed_prefix(images, image_masks, tokens, token_mask, state=state)
    _, cache = model.vlm_with_expert.forward(
        attention_mask=make_att_2d_masks(mask, attention),
        position_ids=mask.cumsum(1) - 1,
        past_key_values=None,
        inputs_embeds=[embedded, None],
        use_cache=True,
    )
    pictures = embedded[:, : embedded.shape[1] - tokens.shape[1] - 1]  # before the sentence and the one token of the state
    means = [part.mean(1).float() for part in pictures.chunk(len(images), 1)]
    return Context(torch.cat([*means, state[:, : config.robot_state_feature.shape[0]]], -1), mask, cache)


def features(condition: Context) -> Tensor:
    """Return what a context says of the current moment, f32 [B, D]."""
    return condition.features


def blocks(policy: SmolVLAPolicy) -> dict[str, list[int]]:
    """Return which entries of ``features`` show what: "image/<camera>", the mean of a picture's tokens, and "state", normalised."""
    names = [f"image/{key.removeprefix(OBS_IMAGES + '.')}" for key in policy.config.image_features]
    sizes = dict.fromkeys(names, policy.model.vlm_with_expert.config.text_config.hidden_size)
    found, first = {}, 0
    for name, size in {**sizes, "state": policy.config.robot_state_feature.shape[0]}.items():
        found[name] = list(range(first, first + size))
        first += size
    return found


def errors(policy: SmolVLAPolicy, batch: dict[str, Any], generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the squared error of the velocity f32 [B, H], the mean over action dimensions, and no further terms.

    Times are lerobot's, 0.001 + 0.999 Beta(1.5, 1), drawn by inversion: its distribution function is t^1.5.
    """
    clean = policy.prepare_action(batch)
    noise = torch.randn(clean.shape, generator=generator, device=clean.device)
    uniform = torch.rand(len(clean), generator=generator, device=clean.device)
    squares = policy.model.forward(*_inputs(policy, batch), clean, noise, 0.001 + 0.999 * uniform ** (1 / 1.5))
    return squares[..., : batch[ACTION].shape[-1]].float().mean(-1), {}


def velocity(policy: SmolVLAPolicy, x_t: Tensor, t: Tensor, condition: Context) -> Tensor:
    """Return v [B, H, M] of the noised chunk ``x_t`` at times ``t`` f32 [B]; actions are padded to M = max_action_dim."""
    return policy.model.denoise_step(condition.mask, condition.cache, x_t, t).float()


def x0(policy: SmolVLAPolicy, x_t: Tensor, t: Tensor, condition: Context) -> Tensor:
    """Return the clean estimate [B, H, M] (normalised, padded) of the noised chunk ``x_t`` at times ``t`` f32 [B]."""
    return x0_from_velocity(x_t, velocity(policy, x_t, t, condition), t)


def noise_shape(config: SmolVLAConfig) -> tuple[int, int]:
    """Return the shape [H, M] of one episode's sampling noise."""
    return config.chunk_size, config.max_action_dim


def own_steps(config: SmolVLAConfig) -> int:
    """Return the number of sampling steps that the checkpoint asks for."""
    return config.num_steps


def chunk(policy: SmolVLAPolicy, batch: dict[str, Any], noise: Tensor, steps: int | None) -> Tensor:
    """Return the normalised actions [B, n_action_steps, A] from the current step on; ``steps`` of Euler, None: the checkpoint's own."""
    return ahead(policy.config, sampled(policy, context(policy, batch), noise, steps))[:, : policy.config.n_action_steps]


def sampled(policy: SmolVLAPolicy, condition: Context, noise: Tensor, steps: int | None, adjust: Adjust | None = None) -> Tensor:
    """Return the whole normalised, padded chunk [B, H, M]; ``adjust`` guides the sampler (see flow.py)."""
    return sample_flow(lambda x_t, t: velocity(policy, x_t, t, condition), noise, steps or policy.config.num_steps, adjust)


def ahead(config: SmolVLAConfig, plan: Tensor) -> Tensor:
    """Return the actions [B, H, A] of a whole chunk [B, H, M]: all lie ahead, and padding is left out."""
    return plan[..., : config.action_feature.shape[0]]


def _inputs(policy: SmolVLAPolicy, batch: dict[str, Any]) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor, Tensor]:
    """Return what the model reads: pictures and their masks, tokens and their mask, state padded to max_state_dim."""
    pixels = {key: batch[key] * IMAGE_STD + IMAGE_MEAN for key in policy.config.image_features}  # lerobot's SmolVLA takes [0, 1]
    images, masks = policy.prepare_images(pixels)
    tokens, token_mask = _tokens(policy, batch[TASK], batch[OBS_STATE].device)
    return images, masks, tokens, token_mask, policy.prepare_state(batch)


def _tokens(policy: SmolVLAPolicy, task: list[str], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return tokens int64 [B, L] and their mask of B sentences, by the steps of lerobot's own preprocessor."""
    tokenize = TokenizerProcessorStep(
        tokenizer=policy.model.vlm_with_expert.processor.tokenizer, max_length=policy.config.tokenizer_max_length
    )
    transition = tokenize(NewLineTaskProcessorStep()(create_transition(observation={}, complementary_data={"task": task})))
    found = transition[TransitionKey.OBSERVATION]
    return found[OBS_LANGUAGE_TOKENS].to(device), found[OBS_LANGUAGE_ATTENTION_MASK].to(device)
