"""One way from pictures and numbers to lerobot's batches, for training and inference alike.

Keys and layouts are lerobot's: ``observation.images.<camera>`` f32 [B, K, 3, h, w], ``observation.state`` f32 [B, K, S],
``observation.environment_state`` f32 [B, K, E], ``task`` B sentences, ``action`` f32 [B, H, A], ``action_is_pad`` bool [B, H]. Numbers are
normalised by robowm's Normalizer, pictures mapped from [0, 255] to [-1, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lerobot.configs import FeatureType, NormalizationMode, PolicyFeature
from lerobot.utils.constants import ACTION, OBS_ENV_STATE, OBS_IMAGES, OBS_STATE
from torch import Tensor

from robowm.data.normalize import Normalizer
from robowm.data.spec import StoreSpec
from robowm.errors import UserError
from robowm.policy.losses import repeat_edges

IMAGE_MEAN = IMAGE_STD = 0.5  # of pixels in [0, 1]
PAD, TASK = "action_is_pad", "task"
KINDS = {OBS_STATE: "STATE", OBS_ENV_STATE: "ENV", ACTION: "ACTION"}  # lerobot's kind of each array of numbers
NORMALIZATION = {
    "VISUAL": NormalizationMode.MEAN_STD,
    "STATE": NormalizationMode.MIN_MAX,
    "ENV": NormalizationMode.MIN_MAX,
    "ACTION": NormalizationMode.MIN_MAX,
}


@dataclass(frozen=True)
class Inputs:
    """What a policy looks at beside proprioception: cameras, or the simulator's truth, never both."""

    cameras: tuple[str, ...]
    environment_state: bool

    def __post_init__(self) -> None:
        if self.cameras and self.environment_state:
            raise UserError(
                f"a policy that sees cameras ({', '.join(self.cameras)}) must not see environment_state, the simulator's truth; "
                "set environment_state=false, or cameras=[] for a state policy"
            )
        if not self.cameras and not self.environment_state:
            raise UserError("a policy needs cameras, or environment_state=true for a state policy; found neither")


def features(spec: StoreSpec, inputs: Inputs) -> tuple[dict[str, PolicyFeature], dict[str, PolicyFeature]]:
    """Return lerobot's input and output features of a policy with ``inputs`` on data of ``spec``."""
    spec.check_cameras(inputs.cameras, "the data", "policy.cameras")
    wanted = {OBS_STATE: PolicyFeature(FeatureType.STATE, (len(spec.state_names),))}
    for camera in inputs.cameras:
        wanted[f"{OBS_IMAGES}.{camera}"] = PolicyFeature(FeatureType.VISUAL, (3, *spec.cameras[camera]))
    if inputs.environment_state:
        if spec.environment_state_names is None:
            raise UserError("a state policy needs environment_state, which the data do not hold; collect them again, or use cameras")
        wanted[OBS_ENV_STATE] = PolicyFeature(FeatureType.ENV, (len(spec.environment_state_names),))
    return wanted, {ACTION: PolicyFeature(FeatureType.ACTION, (len(spec.action_names),))}


@dataclass(frozen=True)
class Normalizers:
    """The normaliser of each array, under lerobot's names."""

    by_key: dict[str, Normalizer]

    @classmethod
    def fit(
        cls,
        arrays: Mapping[str, Sequence[Any]],
        names: Mapping[str, Sequence[str]],
        modes: Mapping[str, NormalizationMode] = NORMALIZATION,
    ) -> Normalizers:
        """Fit one per key on a list of arrays [T, D] each, in the mode that lerobot's ``normalization_mapping`` has for its kind."""
        kinds = {NormalizationMode.MIN_MAX: Normalizer.fit, NormalizationMode.MEAN_STD: Normalizer.fit_standard}
        return cls({key: kinds[modes[KINDS[key]]](list(parts), names[key]) for key, parts in arrays.items()})

    def stats(self, inputs: Inputs) -> dict[str, dict[str, Tensor]]:
        """Return the statistics from which lerobot's processors build the same maps."""
        pixels = {"mean": torch.full((3, 1, 1), IMAGE_MEAN), "std": torch.full((3, 1, 1), IMAGE_STD)}
        numbers = {key: {k: torch.from_numpy(v) for k, v in n.safe_stats().items()} for key, n in self.by_key.items()}
        return {**numbers, **{f"{OBS_IMAGES}.{camera}": pixels for camera in inputs.cameras}}

    def to_json(self) -> dict[str, Any]:
        return {key: normalizer.to_json() for key, normalizer in self.by_key.items()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Normalizers:
        return cls({key: Normalizer.from_json(value) for key, value in record.items()})


def observation_batch(
    frames: Mapping[str, Tensor],
    state: Tensor,
    environment_state: Tensor | None,
    task: Sequence[str],
    normalizers: Normalizers,
    inputs: Inputs,
) -> dict[str, Any]:
    """Return the observation part of a batch from frames uint8 [B, K, h, w, 3], state f32 [B, K, S], truth f32 [B, K, E] or None and B
    sentences."""
    batch = {OBS_STATE: normalizers.by_key[OBS_STATE].normalize(state), TASK: list(task)}
    for camera in inputs.cameras:
        pixels = frames[camera].permute(0, 1, 4, 2, 3).float() / 255
        batch[f"{OBS_IMAGES}.{camera}"] = (pixels - IMAGE_MEAN) / IMAGE_STD
    if inputs.environment_state:
        if environment_state is None:
            raise UserError("this is a state policy, and here nobody knows environment_state; use a policy that sees cameras")
        batch[OBS_ENV_STATE] = normalizers.by_key[OBS_ENV_STATE].normalize(environment_state)
    return batch


def action_batch(action: Tensor, valid: Tensor, normalizers: Normalizers) -> dict[str, Tensor]:
    """Return the action part of a batch from f32 [B, H, A] and bool [B, H]; padding becomes the nearest valid action."""
    return {ACTION: normalizers.by_key[ACTION].normalize(repeat_edges(action, valid)), PAD: ~valid}
