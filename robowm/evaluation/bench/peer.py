"""The peer of ``robowm bench suite=diffusers``: a world model as one writes it with diffusers alone, UNet2DModel and its Euler scheduler.

    B clips, k context frames, F frames predicted at a time, V views, A action dimensions

Context frames and the noisy next frames of all views are stacked on channels; a small network turns the chunk's actions into the class
embedding; the U-Net predicts the clean frames. It gets what our model gets: the same frames, steps, share of pure noise and optimiser.
It predicts no proprioception, which spares it that work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from diffusers import EulerDiscreteScheduler, UNet2DModel
from torch import Tensor, nn

from robowm.types import ClipBatch, Obs
from robowm.world_model.model import WorldModelNet

WIDTHS = (1, 2, 3)  # of the U-Net's three resolutions, in units of the base width
GROUPS = 8  # of the normalisation; widths are multiples, as vector units like them


@dataclass(frozen=True)
class PeerMemory:
    """The last k frames f32 [N, k, V, 3, h, w] in [-1, 1]; proprioception stays that of the start."""

    frames: Tensor
    state: np.ndarray  # f32 [N, 1, S]
    task: tuple[str, ...]

    def take(self, index: np.ndarray) -> PeerMemory:
        """See RollMemory."""
        return PeerMemory(self.frames[torch.from_numpy(index)], self.state[index], tuple(self.task[i] for i in index))

    def put(self, index: np.ndarray, other: PeerMemory) -> PeerMemory:
        """See RollMemory."""
        return replace(self, frames=self.frames.index_copy(0, torch.from_numpy(index), other.frames))


class DiffusersPeer(nn.Module):
    """``x0(noisy [B, F, V, 3, h, w], timestep [B], context [B, k, V, 3, h, w], action [B, F, A])``; satisfies WorldModel too."""

    name = "diffusers"

    def __init__(self, ours: WorldModelNet, base: int) -> None:
        super().__init__()
        design, layout = ours.design, ours.layout
        self.layout, self.normalize_action = layout, ours.normalize_action
        self.chunk, self.context, self.steps, self.cameras = design.chunk, design.context, design.sampling_steps, dict(layout.cameras)
        views = 3 * len(layout.cameras)
        self.unet = unet(views * (self.context + self.chunk), views * self.chunk, layout.size, base)
        embedding = self.unet.time_embedding.linear_2.out_features
        actions = self.chunk * len(ours.normalize_action.low)
        self.action = nn.Sequential(nn.Linear(actions, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.scheduler = EulerDiscreteScheduler(prediction_type="sample", timestep_spacing="trailing")

    def x0(self, noisy: Tensor, timestep: Tensor, context: Tensor, action: Tensor) -> Tensor:
        """Return the clean frames f32 [B, F, V, 3, h, w]; ``noisy`` is scaled as the scheduler asks."""
        x = torch.cat([context, noisy], 1).flatten(1, 3)
        y = self.unet(x, timestep, class_labels=self.action(action.flatten(1)), return_dict=False)[0]
        return y.unflatten(1, (self.chunk, -1, 3))

    def start(self, obs: Obs) -> PeerMemory:
        """See WorldModel."""
        frames = {camera: torch.from_numpy(np.ascontiguousarray(obs.frames[camera])) for camera in self.cameras}
        rows = self.layout.pack(frames, torch.zeros(*obs.state.shape[:2], self.layout.state_dim))
        video = self.layout.video(rows).to(self.unet.device)
        padded = torch.cat([video[:, :1].expand(-1, self.context, *[-1] * 4), video], 1)
        return PeerMemory(padded[:, -self.context :], obs.state[:, -1:], obs.task)

    @torch.inference_mode()
    def predict(self, memory: PeerMemory, actions: np.ndarray, rngs: Sequence[np.random.Generator]) -> tuple[Obs, PeerMemory]:
        """See WorldModel, for whole chunks."""
        shape = (self.chunk, *memory.frames.shape[2:])
        device = memory.frames.device
        action = torch.from_numpy(self.normalize_action.normalize(np.asarray(actions, np.float32))).to(device)
        self.scheduler.set_timesteps(self.steps, device=device)
        noise = torch.from_numpy(np.stack([rng.standard_normal(shape, np.float32) for rng in rngs])).to(device)
        x = noise * self.scheduler.init_noise_sigma
        for timestep in self.scheduler.timesteps:
            scaled = self.scheduler.scale_model_input(x, timestep)
            x = self.scheduler.step(self.x0(scaled, timestep, memory.frames, action), timestep, x).prev_sample
        grey = x.clamp(-1, 1).add(1).mul(127.5).round()
        frames = {camera: grey[:, :, i].to(torch.uint8).movedim(-3, -1).cpu().numpy() for i, camera in enumerate(self.cameras)}
        recent = torch.cat([memory.frames, grey.div(127.5).sub(1)], 1)[:, -self.context :]
        return Obs(frames, memory.state.repeat(self.chunk, 1), None, memory.task), replace(memory, frames=recent)


@dataclass(frozen=True)
class PeerLoss:
    """Loss for ``robowm.train.learner``: mean squared error of the clean frames at a random timestep."""

    pure_noise: float  # share of clips at the last timestep, where sampling starts

    def __call__(self, peer: DiffusersPeer, batch: ClipBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        video = peer.layout.video(peer.layout.pack(batch.frames, batch.state))[:, -peer.context - peer.chunk :]
        context, clean = video[:, : peer.context], video[:, peer.context :]
        last, device = peer.scheduler.config.num_train_timesteps - 1, clean.device
        timestep = torch.randint(0, last + 1, (len(clean),), generator=generator, device=device)
        timestep = torch.where(torch.rand(len(clean), generator=generator, device=device) < self.pure_noise, last, timestep)
        sigma = _sigma(peer.scheduler, timestep).view(-1, *[1] * (clean.dim() - 1))
        noisy = (clean + sigma * torch.randn(clean.shape, generator=generator, device=device)) / (sigma.square() + 1).sqrt()
        error = (peer.x0(noisy, timestep, context, peer.normalize_action.normalize(batch.action)) - clean).square().flatten(2).mean(2)
        loss = (error * batch.action_valid).sum() / batch.action_valid.sum().clamp_min(1)
        return loss, {"pixels": loss}


def _sigma(scheduler: EulerDiscreteScheduler, timestep: Tensor) -> Tensor:
    """Return the noise's standard deviation at each training timestep."""
    alphas = scheduler.alphas_cumprod.to(timestep.device)[timestep]
    return ((1 - alphas) / alphas).sqrt()


def unet(inputs: int, outputs: int, size: tuple[int, int], base: int) -> UNet2DModel:
    """Return a U-Net of three resolutions that are ``base`` times ``WIDTHS`` channels wide."""
    widths = tuple(base * width for width in WIDTHS)
    return UNet2DModel(
        sample_size=size,
        in_channels=inputs,
        out_channels=outputs,
        layers_per_block=1,
        block_out_channels=widths,
        down_block_types=("DownBlock2D",) * len(widths),
        up_block_types=("UpBlock2D",) * len(widths),
        norm_num_groups=GROUPS,
        class_embed_type="identity",
    )


def matched(ours: WorldModelNet) -> DiffusersPeer:
    """Return a fresh peer whose number of parameters is nearest to that of ``ours``."""
    bases = range(GROUPS, 40 * GROUPS, GROUPS)
    views = 3 * len(ours.layout.cameras)
    with torch.device("meta"):
        sizes = {
            base: count(unet(views * (ours.design.context + ours.design.chunk), views * ours.design.chunk, (8, 8), base)) for base in bases
        }
    return DiffusersPeer(ours, min(bases, key=lambda base: abs(sizes[base] - count(ours))))


def count(module: nn.Module) -> int:
    """Return how many parameters ``module`` has."""
    return sum(parameter.numel() for parameter in module.parameters())
