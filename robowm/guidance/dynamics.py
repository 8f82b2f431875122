"""Where the next actions lead, in the latent space of a frozen policy encoder (ReGuide, arXiv 2606.28939; LPB, arXiv 2508.05941).

    B moves, D entries of a latent, S steps that one prediction skips (a super-action), A entries of an action

    z[t + S] ~ z[t] + f(z[t], a[t], ..., a[t + S - 1])

Trained on demonstrations and on rollouts of the policy, successes and failures alike. With one moment of history a transformer over tokens
of moments has a single token, so f is a residual network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from robowm.artefacts import claim, fingerprint_files, fingerprint_json, read_artefact, write_artefact
from robowm.data.shares import StoreShare, open_shares
from robowm.data.spec import ACTION
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.nn.mlp import ResidualMlp
from robowm.policy.latents import Latents, load_denoiser
from robowm.policy.lerobot import DenoisingAdapter
from robowm.train.distributed import pick_device
from robowm.train.learner import Fitting, Learner, derive_seed, fit
from robowm.train.optim import OptimConfig
from robowm.train.weights import WEIGHTS, load_weights, save_weights

KIND = "dynamics"
HELD_OUT = 10  # every so many episodes of a store one is only measured on
Encoded = tuple[np.ndarray, np.ndarray]  # latents f32 [T + 1, D] and normalised actions f32 [T, A] of an episode
OPTIM = OptimConfig(lr=1e-3, weight_decay=1e-4, betas=(0.9, 0.99), warmup_steps=50, ema=0.995)


class LatentDynamics(nn.Module):
    """The network. Actions are those of the policy, normalised by its own normaliser: there is only one in play."""

    def __init__(self, size: int, skip: int, action: int, width: int = 256, depth: int = 3, dropout: float = 0.1) -> None:
        super().__init__()
        self.facts = {"size": size, "skip": skip, "action": action, "width": width, "depth": depth, "dropout": dropout}
        self.skip = skip
        self.change = ResidualMlp(size + skip * action, size, width, depth, dropout)

    def forward(self, latent: Tensor, actions: Tensor) -> Tensor:
        """Return the latent f32 [B, D] after the normalised ``actions`` f32 [B, S, A] from ``latent`` f32 [B, D]."""
        return latent + self.change(torch.cat([latent, actions.flatten(1)], -1))


@dataclass(frozen=True)
class Moves:
    """A batch of moves."""

    latent: Tensor  # f32 [B, D]
    action: Tensor  # f32 [B, S, A], normalised
    after: Tensor  # f32 [B, D]


class MoveSampler:
    """Moves of S steps out of several stores. ``batch(step)`` is a pure function of (seed, step)."""

    def __init__(
        self, encoded: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]], shares: Sequence[float], skip: int, batch: int, seed: int
    ):
        """``encoded`` holds the episodes of each store; those shorter than S do not count."""
        self._stores = [[pair for pair in pairs if len(pair[1]) >= skip] for pairs in encoded]
        self._starts = [np.cumsum([0, *(len(action) - skip + 1 for _, action in pairs)]) for pairs in self._stores]
        if any(not pairs for pairs in self._stores):
            raise UserError(f"a store has no episode of at least skip={skip} steps to learn from; lower skip or record longer episodes")
        self._shares = np.asarray(shares, float) / np.sum(shares)
        self._skip, self._batch, self._seed = skip, batch, seed

    def batch(self, step: int) -> Moves:
        """Return ``batch`` moves."""
        rng = np.random.default_rng([self._seed, step])
        chosen = rng.choice(len(self._stores), self._batch, p=self._shares)
        return self.moves([(int(store), int(rng.integers(self._starts[store][-1]))) for store in chosen])

    def all(self, most: int) -> Moves:
        """Return up to ``most`` moves of every store, evenly spread over it."""
        return self.moves(
            [(s, int(n)) for s, starts in enumerate(self._starts) for n in np.unique(np.linspace(0, starts[-1] - 1, most).astype(int))]
        )

    def moves(self, numbers: Sequence[tuple[int, int]]) -> Moves:
        """Return the moves ``numbers``: (store, start counted over its episodes)."""
        found = []
        for store, number in numbers:
            episode = int(np.searchsorted(self._starts[store], number, side="right")) - 1
            latents, actions = self._stores[store][episode]
            t = number - self._starts[store][episode]
            found.append((latents[t], actions[t : t + self._skip], latents[t + self._skip]))
        return Moves(*(torch.from_numpy(np.stack(part)) for part in zip(*found, strict=True)))


def dynamics_loss(net: LatentDynamics, moves: Moves, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean squared error of the latent, and that of no change at all beside it."""
    loss = (net(moves.latent, moves.action).float() - moves.after).square().mean()
    return loss, {"error": loss, "no_change": (moves.latent - moves.after).square().mean()}


def run(
    *,
    encoder: Path | str,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    output_dir: Path | str,
    steps: int = 3000,
    skip: int = 8,
    width: int = 256,
    depth: int = 3,
    dropout: float = 0.1,
    batch_size: int = 128,
    optim: OptimConfig = OPTIM,
    seed: int = 0,
    device: str = "auto",
    **fitting: Unpack[Fitting],
) -> dict[str, Any]:
    """Train on ``stores`` in the latent space of the encoder of the finished policy folder ``encoder`` and return what was measured.

    Every tenth episode of each store (of fewer than ten the last one) is measured on: ``error`` and ``no_change`` are mean squared errors
    there, of the prediction and of the latent as it was. ``skip`` may be at most the number of actions that the policy plans ahead.
    """
    output_dir = Path(output_dir)
    shares, opened, inputs = open_shares(stores)
    adapter = load_denoiser(encoder, device=device)
    inputs["policy"] = adapter.weights
    network = {"skip": skip, "width": width, "depth": depth, "dropout": dropout}
    config = {"stores": [share.settings() for share in shares], "network": network, "steps": steps, "optim": asdict(optim)}
    config |= {"batch_size": batch_size, "seed": seed}
    if (finished := claim(output_dir, kind=KIND, inputs=inputs, config=config)) is not None:
        return finished["measured"]
    check_skip(skip, adapter)
    latents = Latents(adapter)
    pairs = [encoded(latents, store, share.only_success) for share, store in zip(shares, opened, strict=True)]
    training, measuring = zip(*map(held_out, pairs), strict=True)
    weights = [share.share for share in shares]
    torch.manual_seed(derive_seed(seed))
    fresh = LatentDynamics(latents.size, action=len(adapter.spec.action_names), **network)
    net = fit(
        Learner(fresh, MoveSampler(training, weights, skip, batch_size, seed).batch, dynamics_loss),
        steps=steps,
        optim=optim,
        seed=seed,
        output_dir=output_dir,
        config={"inputs": inputs, "config": config},
        label="train dynamics",
        device=device,
        **fitting,
    )
    measured = measure(net.cpu(), MoveSampler(measuring, weights, skip, batch_size, seed).all(2000))
    save_weights(net, output_dir)
    fingerprint = fingerprint_json([fingerprint_files([output_dir / WEIGHTS]), net.facts])
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint, inputs=inputs, config=config, network=net.facts, measured=measured)
    return measured


def held_out(episodes: Sequence[Encoded]) -> tuple[list[Encoded], list[Encoded]]:
    """Return the episodes to train on and those to measure on: every tenth; of fewer than ten the last one, which is trained on as well."""
    last = [i % HELD_OUT == HELD_OUT - 1 for i in range(len(episodes))]
    measuring = [episode for episode, held in zip(episodes, last, strict=True) if held]
    return [episode for episode, held in zip(episodes, last, strict=True) if not held], measuring or list(episodes[-1:])


def encoded(latents: Latents, store: EpisodeStore, only_success: bool) -> list[Encoded]:
    """Return each episode of ``store`` that counts."""
    normalizer = latents.policy.normalizers.by_key[ACTION]
    kept = [i for i in range(len(store)) if not only_success or store.meta(i).success == 1.0]
    latents.policy.check(store.spec.to_json())
    cameras = list(latents.policy.inputs.cameras)
    episodes = (store.episode(i, cameras=cameras) for i in kept)
    return [(latents.of_episode(episode), normalizer.normalize(episode.action).astype(np.float32)) for episode in episodes]


@torch.no_grad()
def measure(net: LatentDynamics, moves: Moves) -> dict[str, float]:
    """Return the mean squared errors on ``moves``."""
    _, terms = dynamics_loss(net.eval(), moves, torch.Generator())
    return {name: float(value) for name, value in terms.items()} | {"moves": len(moves.latent)}


def check_skip(skip: int, policy: DenoisingAdapter) -> None:
    """Raise UserError unless the policy plans at least ``skip`` actions ahead."""
    planned = sum(offset >= 0 for offset in policy.family.offsets(policy.model.config)[1])
    if not 1 <= skip <= planned:
        raise UserError(f"skip={skip}; the policy plans {planned} actions from the current step on, so choose 1 to {planned}")


def load_dynamics(path: Path | str, policy: DenoisingAdapter) -> LatentDynamics:
    """Load the finished artefact at ``path``, which must have been trained on the encoder of ``policy``."""
    path = Path(path)
    record = read_artefact(path, KIND)
    if record["inputs"]["policy"] != policy.weights:
        raise UserError(
            f"{path} was trained on the encoder of policy {record['inputs']['policy']}, this is {policy.weights}; train dynamics for it"
        )
    net = LatentDynamics(**record["network"])
    load_weights(net, path, "the dynamics")
    return net.to(pick_device(policy.device.type)).eval().requires_grad_(False)
