"""Which action made these frames? A small network learns to read it off real frames, then reads generated ones (RLIR, arXiv 2509.23958).

    N episodes, L steps, A action entries, B pairs of rows

If a model follows its actions, the network reads the commanded ones off its pictures as well as off real frames; that error on real
held-out frames is the floor. Units are the normaliser's: an action's range in the training data is [-1, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robowm.artefacts import claim, fingerprint_files, fingerprint_json, write_artefact
from robowm.data.normalize import Normalizer
from robowm.data.sampler import ClipSampler
from robowm.data.shares import StoreShare, open_shares
from robowm.errors import UserError
from robowm.nn.trunk import CELLS, trunk
from robowm.reward.augment import blur, noise, relight
from robowm.reward.success import to_pictures
from robowm.train.distributed import pick_device
from robowm.train.learner import Learner, derive_seed, fit
from robowm.train.optim import OptimConfig
from robowm.train.weights import WEIGHTS, load_weights, save_weights
from robowm.types import ClipBatch, Episode

KIND = "inverse_dynamics"
OPTIM = OptimConfig(lr=1e-3, weight_decay=0.05, betas=(0.9, 0.99), warmup_steps=50, ema=0.995)
BLOCK = 512  # pairs of rows read at a time


@dataclass(frozen=True)
class InverseDynamics:
    """How the reader of actions is trained."""

    steps: int = 2000
    batch_size: int = 64
    width: int = 32
    optim: OptimConfig = OPTIM
    seed: int = 0
    device: str = "auto"
    log_every: int = 50
    save_every: int = 500

    def shape(self) -> dict[str, Any]:
        """Return what the weights depend on."""
        return {key: value for key, value in asdict(self).items() if key not in ("device", "log_every", "save_every")}


class InverseNet(nn.Module):
    """Two consecutive rows of all cameras -> the action between them. Carries its normaliser."""

    def __init__(self, cameras: Mapping[str, tuple[int, int]], action: Normalizer, width: int) -> None:
        super().__init__()
        self.cameras, self.action = dict(cameras), action
        self.trunks = nn.ModuleDict({name: trunk(6, width, min(size)) for name, size in cameras.items()})
        features = len(cameras) * 2 * width * CELLS
        self.head = nn.Sequential(nn.Linear(features, 4 * width), nn.SiLU(), nn.Linear(4 * width, len(action.low)))

    def forward(self, pictures: Mapping[str, Tensor]) -> Tensor:
        """Map {camera: f32 [B, 6, h, w] in [0, 1]} to normalised actions f32 [B, A]."""
        features = [camera(pictures[name] - 0.5).flatten(1) for name, camera in self.trunks.items()]
        return self.head(torch.cat(features, 1)).float()


@dataclass(frozen=True)
class ActionError:
    """A ``Measure``: mean absolute error of the actions read off an arm's pictures against the episode's own."""

    name: str  # fingerprint of the reader
    net: InverseNet
    metric: str  # "action_error/expert"

    def __call__(
        self, shown: Mapping[str, np.ndarray], scores: Mapping[str, np.ndarray], group: Sequence[Episode]
    ) -> list[dict[str, float]]:
        """See Measure; ``scores`` are not looked at."""
        read = read_actions(self.net, shown)
        commanded = self.net.action.normalize(np.stack([episode.action[: read.shape[1]] for episode in group]))
        return [{self.metric: float(error)} for error in np.abs(read - commanded).mean((1, 2))]


def train_reader(
    settings: InverseDynamics, stores: Sequence[StoreShare | Mapping[str, Any]], cameras: Sequence[str], output_dir: Path
) -> tuple[str, InverseNet]:
    """Train on ``stores``, or load what a finished ``output_dir`` holds; return its fingerprint and the network, in evaluation mode."""
    shares, opened, inputs = open_shares(stores)
    for store in opened:
        store.spec.check_cameras(cameras, str(store.path))
    sizes = {name: tuple(opened[0].spec.cameras[name]) for name in cameras}
    config = {**settings.shape(), "cameras": sizes, "stores": [share.settings() for share in shares]}
    if (record := claim(output_dir, kind=KIND, inputs=inputs, config=config)) is not None:
        net = InverseNet(sizes, Normalizer.from_json(record["action"]), settings.width)
        load_weights(net, output_dir, "the reader of actions")
        return record["fingerprint"], net.to(pick_device(settings.device)).eval()
    sampler = ClipSampler(
        shares,
        cameras=cameras,
        obs_offsets=[0, 1],
        action_offsets=[0],
        batch_size=settings.batch_size,
        seed=settings.seed,
        anchors="inside",
    )
    torch.manual_seed(derive_seed(settings.seed))
    net = fit(
        Learner(InverseNet(sizes, Normalizer.fit(sampler.reader.action), settings.width), sampler.batch, action_loss),
        steps=settings.steps,
        optim=settings.optim,
        seed=settings.seed,
        output_dir=output_dir,
        device=settings.device,
        log_every=settings.log_every,
        save_every=settings.save_every,
        config={**config, "inputs": inputs},
        label="train inverse dynamics",
    )
    save_weights(net, output_dir)
    fingerprint = fingerprint_json([fingerprint_files([output_dir / WEIGHTS]), net.action.to_json()])
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint, inputs=inputs, config=config, action=net.action.to_json())
    return fingerprint, net


def action_loss(net: InverseNet, batch: ClipBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean absolute error of the action between two rows; pictures are relit and softened, so that it also reads generated ones."""
    wanted = net.action.normalize(batch.action[:, 0])
    pictures = {
        name: noise(blur(relight(to_pictures(batch.frames[name]), generator), generator), generator).clamp(0, 1) for name in net.cameras
    }
    loss = F.l1_loss(net(pictures), wanted)
    return loss, {"action_error": loss}


@torch.inference_mode()
def read_actions(net: InverseNet, frames: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return normalised actions f32 [N, L, A] read off uint8 [N, L + 1, h, w, 3] of each camera."""
    if missing := [name for name in net.cameras if name not in frames]:
        raise UserError(f"the reader of actions looks at camera {missing[0]!r}, which {', '.join(frames)} lack")
    device = next(net.parameters()).device
    n, rows = next(iter(frames.values())).shape[:2]
    pairs = {name: np.stack([frames[name][:, :-1], frames[name][:, 1:]], 2).reshape(-1, 2, *frames[name].shape[2:]) for name in net.cameras}
    found = [
        net({name: to_pictures(torch.from_numpy(values[i : i + BLOCK]).to(device)) for name, values in pairs.items()})
        for i in range(0, n * (rows - 1), BLOCK)
    ]
    return torch.cat(found).cpu().numpy().reshape(n, rows - 1, -1)
