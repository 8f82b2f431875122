"""Does the goal hold in these frames? A small convolutional classifier with a threshold that was chosen for precision.

The probability of an observation row is computed from that row and the ``rows - 1`` before it, of all cameras. An episode counts as a
success when the probability stays at or above the threshold for ``consecutive`` rows; the last of them is where the success is confirmed.
Row 0, the reset state, cannot succeed (the same rule as evaluation/policies.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from robowm.artefacts import read_artefact
from robowm.data.spec import check_tasks
from robowm.errors import UserError, nearest
from robowm.nn.trunk import trunk
from robowm.train.weights import load_weights
from robowm.types import ClipBatch, Score

KIND = "success_classifier"
_BLOCK = 512  # windows judged at a time


class SuccessNet(nn.Module):
    """Frames of all cameras -> logit. One small convolutional trunk per camera, halving the side until 4 x 4 cells are left."""

    def __init__(self, cameras: Mapping[str, tuple[int, int]], rows: int = 2, width: int = 32, dropout: float = 0.2):
        super().__init__()
        self.cameras = {name: tuple(size) for name, size in cameras.items()}
        self.rows = rows
        self.trunks = nn.ModuleDict({name: trunk(3 * rows, width, min(size)) for name, size in self.cameras.items()})
        features = len(self.cameras) * 2 * width * 16
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(features, 4 * width), nn.SiLU(), nn.Linear(4 * width, 1))

    def forward(self, pictures: Mapping[str, Tensor]) -> Tensor:
        """Map {camera: f32 [B, 3 * rows, h, w] in [0, 1]} to logits f32 [B]."""
        features = [camera(pictures[name] - 0.5).flatten(1) for name, camera in self.trunks.items()]
        return self.head(torch.cat(features, 1))[:, 0].float()


def to_pictures(frames: Tensor) -> Tensor:
    """Map uint8 [B, K, h, w, 3] to f32 [B, 3 K, h, w] in [0, 1]."""
    b, k, h, w, c = frames.shape
    return frames.permute(0, 1, 4, 2, 3).reshape(b, k * c, h, w).float() / 255


@dataclass(frozen=True)
class Verdict:
    """What the classifier says of one episode."""

    success: bool
    score: float  # the largest probability that ``consecutive`` rows in a row reach; success = score >= threshold
    confirmed: int | None  # observation row at which the first success is confirmed
    probabilities: np.ndarray  # f32 [T+1], of each observation row


@dataclass(frozen=True)
class SuccessClassifier:
    """Satisfies ``Reward``: the term ``success`` is the probability after each step."""

    name: str  # fingerprint
    net: SuccessNet
    threshold: float
    consecutive: int
    tasks: tuple[str, ...] = ()  # sentences it knows; none: unknown

    def probabilities(self, frames: Mapping[str, np.ndarray]) -> np.ndarray:
        """Map uint8 [..., K, h, w, 3] of each camera to f32 [..., K]: P(goal holds) at each row, given it and the rows before it."""
        self._check({camera: rows.shape[-3:-1] for camera, rows in frames.items()})
        first = frames[next(iter(self.net.cameras))]
        flat = {c: torch.from_numpy(np.ascontiguousarray(frames[c])).reshape(-1, *frames[c].shape[-4:]) for c in self.net.cameras}
        return self._infer(flat).numpy().reshape(first.shape[:-3])

    def judge(self, frames: Mapping[str, np.ndarray]) -> Verdict:
        """Judge an episode from the uint8 [T+1, h, w, 3] of each camera."""
        probabilities = self.probabilities(frames)
        held = held_probability(probabilities[1:], self.consecutive)
        score = float(held.max(initial=0.0))
        success = score >= self.threshold
        confirmed = int((held >= self.threshold).argmax()) + self.consecutive if success else None
        return Verdict(success, score, confirmed, probabilities)

    def __call__(self, clip: ClipBatch, reference: ClipBatch | None = None) -> Score:
        """Score a clip with T+1 observation rows for T steps; f32 [B, T] on the clip's device."""
        self.check_tasks(clip.task)
        self._check({camera: tuple(rows.shape[2:4]) for camera, rows in clip.frames.items()})
        success = self._infer({camera: clip.frames[camera] for camera in self.net.cameras})[:, 1:].to(clip.action.device)
        return Score(success, {"success": success})

    @torch.inference_mode()
    def _infer(self, frames: Mapping[str, Tensor]) -> Tensor:
        """Map uint8 [N, K, h, w, 3] of each camera to f32 [N, K] on the CPU, some windows at a time."""
        device = next(self.net.parameters()).device
        n, k = next(iter(frames.values())).shape[:2]
        window = (torch.arange(k)[:, None] + torch.arange(1 - self.net.rows, 1)).clamp(min=0)  # [K, rows]
        found = []
        for numbers in torch.arange(n * k).split(_BLOCK):
            episode, rows = numbers[:, None] // k, window[numbers % k]
            pictures = {
                c: to_pictures(values[episode.to(values.device), rows.to(values.device)].to(device)) for c, values in frames.items()
            }
            found.append(torch.sigmoid(self.net(pictures)).cpu())
        return torch.cat(found).reshape(n, k)

    def check_tasks(self, tasks: Sequence[str]) -> None:
        """Raise UserError for a sentence that it was not trained on."""
        check_tasks(tasks, self.tasks, f"the success classifier {self.name}")

    def _check(self, sizes: Mapping[str, tuple[int, ...]]) -> None:
        for camera, size in self.net.cameras.items():
            if camera not in sizes:
                raise UserError(f"the success classifier {self.name} looks at camera {camera!r}; {nearest(camera, sizes)}")
            if tuple(sizes[camera]) != size:
                raise UserError(
                    f"the success classifier {self.name} was trained on {camera} frames of {size}, found {tuple(sizes[camera])}"
                )


def held_probability(probabilities: np.ndarray, consecutive: int) -> np.ndarray:
    """Return [T - consecutive + 1]: the least of each ``consecutive`` probabilities in a row (empty for shorter episodes)."""
    if len(probabilities) < consecutive:
        return np.zeros(0, np.float32)
    return np.lib.stride_tricks.sliding_window_view(probabilities, consecutive).min(1)


def load_success_classifier(path: Path | str, *, device: str = "auto", tasks: Sequence[str] | None = None) -> SuccessClassifier:
    """Load the finished artefact at ``path``; ``tasks`` are the sentences it may judge, by default those of its training data."""
    from robowm.train.distributed import pick_device

    path = Path(path)
    record = read_artefact(path, KIND)
    net = build_net(record["net"])
    load_weights(net, path, "the classifier")
    known = tuple(record.get("tasks", ()) if tasks is None else tasks)
    return SuccessClassifier(record["fingerprint"], net.to(pick_device(device)).eval(), record["threshold"], record["consecutive"], known)


def build_net(config: Mapping[str, Any]) -> SuccessNet:
    """Build the network from the JSON that ``describe_net`` gave."""
    return SuccessNet({name: tuple(size) for name, size in config["cameras"].items()}, config["rows"], config["width"])


def describe_net(cameras: Mapping[str, tuple[int, int]], rows: int, width: int) -> dict[str, Any]:
    """Return the JSON that rebuilds a network."""
    return {"cameras": {name: list(size) for name, size in cameras.items()}, "rows": rows, "width": width}
