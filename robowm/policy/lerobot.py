"""The adapter around lerobot's policies: build one for given data, save and load it, act with it through ``protocols.Policy``.

Every inference runs at one fixed batch width, filled up by repeating a row, and each episode's noise comes from its own generator, so an
episode's actions do not depend on which others run beside it. The width is 1 or a multiple of ``LANES``: then no row ends up in the scalar
remainder of a vectorised loop, where exp and its kin round differently in the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from huggingface_hub import snapshot_download
from lerobot.configs import PreTrainedConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from safetensors.torch import load_model
from torch import Tensor

from robowm.artefacts import read_artefact
from robowm.data.spec import ACTION, StoreSpec, check_tasks
from robowm.errors import UserError, nearest
from robowm.policy import lerobot_act, lerobot_diffusion, lerobot_smolvla
from robowm.policy.lerobot_batch import NORMALIZATION, Inputs, Normalizers, features, observation_batch
from robowm.policy.lerobot_small import RobowmDiffusionConfig
from robowm.train.distributed import pick_device
from robowm.types import Obs

KIND = "policy"
PRETRAINED = "pretrained_model"
LANES = 16  # float32 numbers in the widest vector registers
TYPES = {  # type: settings we change
    "robowm_diffusion": {},
    "diffusion": lerobot_diffusion.SETTINGS,
    "act": lerobot_act.SETTINGS,
    "smolvla": lerobot_smolvla.SETTINGS,
}
WEIGHTS = "model.safetensors"


def build(node: Mapping[str, Any], spec: StoreSpec) -> tuple[PreTrainedPolicy, Inputs]:
    """Return a fresh policy for data of ``spec`` and what it looks at.

    ``node`` has ``type`` (robowm_diffusion, diffusion, act or smolvla), ``cameras``, ``environment_state`` and any setting of lerobot's
    config class of that type. Random weights come from torch's global generator, and those of a checkpoint of the same type, a folder or
    hub id ``pretrained_path``, replace them; its settings hold where ``node`` gives no others.
    """
    settings = dict(node)
    kind = settings.pop("type", None)
    if kind not in TYPES:
        raise UserError(f"policy.type is {kind!r}; {nearest(str(kind), TYPES)}")
    inputs = Inputs(tuple(settings.pop("cameras", ())), bool(settings.pop("environment_state", False)))
    config_class = PreTrainedConfig.get_choice_class(kind)
    known = {field.name for field in fields(config_class)}
    for key in settings:
        if key not in known:
            raise UserError(f"policy.{key} is no setting of lerobot's {kind!r}; {nearest(key, known)}")
    wanted, produced = features(spec, inputs)
    pretrained = settings.pop("pretrained_path", None)
    fixed = {"normalization_mapping": TYPES[kind].get("normalization_mapping", NORMALIZATION), "device": "cpu", "push_to_hub": False}
    settings = {**fixed, "input_features": wanted, "output_features": produced, **settings}
    try:
        if pretrained is None:
            model = _constructed(config_class(**{**TYPES[kind], **settings}))
        else:
            model = _pretrained(pretrained_folder(pretrained), kind, settings)
    except (ValueError, NotImplementedError, OSError, ImportError) as error:
        raise UserError(f"lerobot refuses these settings of policy {kind!r}: {' '.join(str(error).split())}") from error
    config = model.config
    ahead = sum(offset >= 0 for offset in family(model).offsets(config)[1])
    if config.n_action_steps > ahead:
        raise UserError(
            f"policy.n_action_steps={config.n_action_steps}; only {ahead} actions of a plan lie ahead, lower it or raise horizon"
        )
    return model, inputs


def family(policy: PreTrainedPolicy) -> ModuleType:
    """Return the module that knows errors and chunks of this kind of policy; those that have ``x0`` can be guided."""
    if isinstance(policy, DiffusionPolicy):
        return lerobot_diffusion
    if isinstance(policy, ACTPolicy):
        return lerobot_act
    if isinstance(policy, SmolVLAPolicy):
        return lerobot_smolvla
    raise UserError(f"no adapter for lerobot's policy type {policy.config.type!r}; known: {', '.join(TYPES)}")


def save(policy: PreTrainedPolicy, normalizers: Normalizers, inputs: Inputs, folder: Path) -> None:
    """Write lerobot's own format: model, configuration, and processors with the same normalisation."""
    try:
        policy.save_pretrained(folder)
        before, after = make_pre_post_processors(policy.config, dataset_stats=normalizers.stats(inputs))
        before.save_pretrained(folder)
        after.save_pretrained(folder)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error}; free some space and run again, it resumes") from error


def load_model_folder(folder: Path) -> PreTrainedPolicy:
    """Return the model of a ``pretrained_model`` folder on the CPU, in evaluation mode."""
    try:
        config = PreTrainedConfig.from_pretrained(folder, local_files_only=True, cli_overrides=["--device=cpu"])
        policy = _constructed(config)
        load_model(policy, folder / WEIGHTS, strict=True)
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise UserError(f"{folder} holds no policy that can be loaded: {' '.join(str(error).split())[:300]}") from error
    return policy.eval()


def pretrained_folder(path: str) -> Path:
    """Return the folder ``path``, or that of the checkpoint with this hub id, downloaded unless it is at hand."""
    if Path(path).is_dir():
        if not (Path(path) / WEIGHTS).is_file():
            raise UserError(f"policy.pretrained_path={path} holds no {WEIGHTS}; name a folder that lerobot saved a policy in, or a hub id")
        return Path(path)
    try:
        return Path(snapshot_download(str(path), allow_patterns=["config.json", WEIGHTS]))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"policy.pretrained_path={path} is no folder, and the hub does not give it: {reason}") from error


def _pretrained(folder: Path, kind: str, settings: Mapping[str, Any]) -> PreTrainedPolicy:
    """Return the policy of lerobot's checkpoint ``folder`` with other ``settings``; every weight must come from it."""
    base = PreTrainedConfig.from_pretrained(folder, local_files_only=True, cli_overrides=["--device=cpu"])
    if base.type != kind:
        raise UserError(f"{folder} holds a policy of type {base.type!r}, policy.type is {kind!r}; use the matching policy")
    policy = _constructed(replace(base, **settings, pretrained_path=folder))
    try:
        missing, _ = load_model(policy, folder / WEIGHTS, strict=False)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{folder / WEIGHTS} does not fit the policy: {' '.join(str(error).split())[:300]}") from error
    if missing:
        raise UserError(
            f"{folder / WEIGHTS} lacks {len(missing)} weights of the policy, such as {sorted(missing)[0]}; use a whole checkpoint"
        )
    policy.config.pretrained_path = None  # what is saved of it stands alone
    return policy


def _constructed(config: PreTrainedConfig) -> PreTrainedPolicy:
    return lerobot_smolvla.construct(config) if config.type == "smolvla" else get_policy_class(config.type)(config)


def load_policy(
    path: Path | str,
    *,
    device: str = "auto",
    infer_width: int = 32,
    ddim_steps: int | None = None,
    tasks: Sequence[str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> LeRobotPolicy:
    """Return the policy of a finished ``train-policy`` or ``improve`` folder, ready to act.

    ``infer_width`` is the fixed number of rows of every inference: so many episodes side by side, or fewer, cost one pass. ``ddim_steps``
    overrides the checkpoint's number of sampling steps. ``tasks`` are the sentences it may be asked for, by default those of its training
    data. ``spec`` (``env.spec()``) is checked against what the policy was trained on;
    without it, cameras and sizes are checked when it first acts.
    """
    path = Path(path)
    record = read_artefact(path, KIND)
    inputs = Inputs(tuple(record["observes"]["cameras"]), record["observes"]["environment_state"])
    model = load_model_folder(path / PRETRAINED)
    policy = adapter(model)(
        model,
        name=("state-" if inputs.environment_state else "") + record["fingerprint"],
        inputs=inputs,
        normalizers=Normalizers.from_json(record["normalizers"]),
        spec=StoreSpec.from_json(record["spec"]),
        device=device,
        infer_width=infer_width,
        steps=ddim_steps,
        tasks=record.get("tasks", ()) if tasks is None else tasks,
    )
    if spec is not None:
        policy.check(spec)
    return policy


@dataclass(frozen=True)
class Recent:
    """The last K rows of what N episodes showed, and what they are asked for."""

    frames: dict[str, np.ndarray]  # uint8 [N, K, h, w, 3]
    state: np.ndarray  # f32 [N, K, S]
    environment_state: np.ndarray | None  # f32 [N, K, E]
    task: tuple[str, ...]  # N sentences


class LeRobotPolicy:
    """A lerobot policy as ``protocols.Policy``. Its memory is a ``Recent``, or None before the first observation."""

    def __init__(
        self,
        model: PreTrainedPolicy,
        *,
        name: str,
        inputs: Inputs,
        normalizers: Normalizers,
        spec: StoreSpec,
        device: str = "auto",
        infer_width: int = 32,
        steps: int | None = None,
        tasks: Sequence[str] = (),  # sentences it knows; none: unknown
    ) -> None:
        if infer_width < 1 or (infer_width > 1 and infer_width % LANES):
            raise UserError(
                f"infer_width={infer_width}; use 1 (a robot) or a multiple of {LANES}, so that results do not depend on batching"
            )
        if steps is not None and steps < 1:
            raise UserError(f"ddim_steps={steps}; use at least 1, or null for the checkpoint's own")
        self.weights, self.name = name, name + _sampled_otherwise(model, steps)
        self.spec, self.inputs, self.normalizers, self.tasks = spec, inputs, normalizers, tuple(tasks)
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()
        self.family, self._width, self.steps = family(model), infer_width, steps
        self._rows = len(self.family.offsets(model.config)[0])  # K

    def check(self, spec: Mapping[str, Any]) -> None:
        """Raise UserError unless an environment or store with ``spec`` (fields of StoreSpec) has what this policy was trained on."""
        found, wanted = StoreSpec(**spec), self.spec
        _compare("cameras", {c: found.cameras.get(c) for c in self.inputs.cameras}, {c: wanted.cameras[c] for c in self.inputs.cameras})
        for key in ("state_names", "action_names", "action_kind", "fps"):
            _compare(key, getattr(found, key), getattr(wanted, key))
        if self.inputs.environment_state:
            _compare("environment_state_names", found.environment_state_names, wanted.environment_state_names)

    def start(self, n: int) -> Recent | None:
        """See Policy."""
        return None

    @torch.no_grad()
    def act(self, obs: Obs, memory: Recent | None, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, Recent]:
        """See Policy: actions f32 [N, n_action_steps, A] in the data's units."""
        memory = self.remember(obs, memory)
        noise = self.noise(rngs)
        chunks = []
        for rows in self.blocks(len(rngs)):
            block = self.family.chunk(self.model, self.batch(memory, rows), None if noise is None else noise[rows], self.steps)
            chunks.append(block)
        actions = self.normalizers.by_key[ACTION].unnormalize(torch.cat(chunks)[: len(rngs)].float())
        return actions.cpu().numpy(), memory

    def remember(self, obs: Obs, memory: Recent | None) -> Recent:
        """Return the last K rows after ``obs``; at a start the first row stands for those before it, as in training."""
        self._check_obs(obs)

        def last(before: np.ndarray | None, new: np.ndarray) -> np.ndarray:
            rows = new if before is None else np.concatenate([before, new], axis=1)
            missing = self._rows - rows.shape[1]
            return np.concatenate([np.repeat(rows[:, :1], missing, axis=1), rows], axis=1) if missing > 0 else rows[:, -self._rows :]

        truth = obs.environment_state if self.inputs.environment_state else None
        return Recent(
            frames={c: last(memory and memory.frames[c], obs.frames[c]) for c in self.inputs.cameras},
            state=last(memory and memory.state, obs.state),
            environment_state=None if truth is None else last(memory and memory.environment_state, truth),
            task=obs.task,
        )

    def noise(self, rngs: Sequence[np.random.Generator]) -> Tensor | None:
        """Return each episode's sampling noise f32 [N, H, A], None for a policy that needs none."""
        shape = self.family.noise_shape(self.model.config)
        if shape is None:
            return None
        return torch.from_numpy(np.stack([rng.standard_normal(shape, np.float32) for rng in rngs])).to(self.device)

    def blocks(self, n: int) -> list[np.ndarray]:
        """Return row numbers int [infer_width] of each inference over n episodes; the last episode fills up the last block."""
        return [np.minimum(np.arange(first, first + self._width), n - 1) for first in range(0, n, self._width)]

    def batch(self, memory: Recent, rows: np.ndarray) -> dict[str, Any]:
        """Return lerobot's batch of the episodes ``rows``."""

        def tensor(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array[rows])).to(self.device)

        truth = None if memory.environment_state is None else tensor(memory.environment_state)
        frames = {camera: tensor(array) for camera, array in memory.frames.items()}
        task = [memory.task[row] for row in rows]
        return observation_batch(frames, tensor(memory.state), truth, task, self.normalizers, self.inputs)

    def _check_obs(self, obs: Obs) -> None:
        check_tasks(obs.task, self.tasks, f"the policy {self.name}")
        found = {camera: frames.shape[2:4] for camera, frames in obs.frames.items()}
        for camera in self.inputs.cameras:
            if found.get(camera) != self.spec.cameras[camera]:
                raise UserError(f"the policy wants cameras {_sizes(self.spec.cameras, self.inputs.cameras)}, found {_sizes(found, found)}")
        if obs.state.shape[-1] != len(self.spec.state_names):
            raise UserError(f"the policy wants the state {self.spec.state_names}, found {obs.state.shape[-1]} numbers")
        if self.inputs.environment_state and obs.environment_state is None:
            raise UserError("this is a state policy, and here nobody knows environment_state; use a policy that sees cameras")


class DenoisingAdapter(LeRobotPolicy):
    """A policy that denoises its plan, by diffusion or along a flow, so that its sampler can be guided (``protocols.Denoiser``)."""

    def encode(self, obs: Obs, memory: Recent | None) -> Any:
        """Return the family's context of the observations up to ``obs``, all episodes in one pass, with gradients where enabled."""
        memory = self.remember(obs, memory)
        return self.family.context(self.model, self.batch(memory, np.arange(len(memory.state))))

    def x0(self, x_t: Tensor, t: Tensor, context: Any) -> Tensor:
        """See Denoiser: the clean normalised chunk [N, H, A]; t [N] are noise steps of DDPM, or times of a flow."""
        return self.family.x0(self.model, x_t, t, context)


def adapter(model: PreTrainedPolicy) -> type[LeRobotPolicy]:
    """Return the class that acts with ``model``."""
    return DenoisingAdapter if hasattr(family(model), "x0") else LeRobotPolicy


def _sampled_otherwise(model: PreTrainedPolicy, steps: int | None) -> str:
    """Return what tells a policy sampled in other steps than its own from the same weights: "-steps2", or nothing."""
    own = family(model).own_steps(model.config)
    return "" if steps in (None, own) else f"-steps{steps}"


def _compare(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise UserError(f"the policy was trained with {what} {wanted}, here they are {found}; use the matching task, sizes or checkpoint")


def _sizes(sizes: Mapping[str, tuple[int, int]], names) -> str:
    return ", ".join(f"{name} {sizes[name][0]}x{sizes[name][1]}" for name in names) or "none"


__all__ = ["DenoisingAdapter", "LeRobotPolicy", "RobowmDiffusionConfig", "build", "family", "load_policy", "save"]
