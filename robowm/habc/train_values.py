"""``robowm train-critics critic=iql`` or ``critic=recap``: a rival's value critic, with a frozen encoder, from episodes of anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
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
from robowm.habc.credit import steps_to_go
from robowm.habc.train import OPTIM
from robowm.habc.value_critics import Iql, Method, Moves, Recap, joined, moves_of
from robowm.policy.latents import Latents, load_denoiser
from robowm.train.learner import Fitting, Learner, derive_seed, fit
from robowm.train.optim import OptimConfig
from robowm.train.weights import WEIGHTS, load_weights, save_weights
from robowm.types import Episode

KIND = "value_critics"
METHODS = {"Iql": Iql, "Recap": Recap}  # what a record names


def run(
    *,
    encoder: Path | str,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    output_dir: Path | str,
    method: Method,
    steps: int = 1500,
    chunk: int | None = None,
    width: int = 64,
    depth: int = 1,
    dropout: float = 0.2,
    batch_size: int = 256,
    optim: OptimConfig = OPTIM,
    seed: int = 0,
    device: str = "auto",
    **fitting: Unpack[Fitting],
) -> dict[str, Any]:
    """Train ``method``'s critic on every step of ``stores`` and return {moves, successes} and how its advantage is spread over them.

    ``encoder`` is a finished policy folder, ``chunk`` the steps of a window, by default as many as that policy executes. Each step is drawn
    alike, whatever the stores' shares.
    """
    output_dir = Path(output_dir)
    shares, opened, inputs = open_shares(stores)
    latents = Latents(load_denoiser(encoder, device=device))
    inputs["policy"] = latents.policy.weights
    chunk = latents.policy.model.config.n_action_steps if chunk is None else chunk
    if chunk < 1:
        raise UserError(f"chunk={chunk}; it must be at least 1")
    network = {"chunk": chunk, "width": width, "depth": depth, "dropout": dropout}
    how = {"name": type(method).__name__, **asdict(method)}
    config = {"stores": [share.settings() for share in shares], "method": how, "network": network}
    config |= {"steps": steps, "optim": asdict(optim), "batch_size": batch_size, "seed": seed}
    if (finished := claim(output_dir, kind=KIND, inputs=inputs, config=config)) is not None:
        return finished["measured"]
    moves = joined([part for store in opened for part in moves_in(latents, store, chunk)])
    torch.manual_seed(derive_seed(seed))
    sizes = {"size": moves.now.shape[1], "action_size": moves.action.shape[1]}
    net = fit(
        learner_of(method, method.build(**sizes, **network), moves, batch_size, seed),
        steps=steps,
        optim=optim,
        seed=seed,
        output_dir=output_dir,
        config={"inputs": inputs, "config": config},
        label="train critics",
        device=device,
        **fitting,
    ).cpu()
    with torch.no_grad():
        spread = method.advantage(net.eval(), moves).quantile(torch.tensor([0.05, 0.5, 0.95]))
    measured = {"moves": len(moves), **dict(zip(("low", "median", "high"), spread.tolist(), strict=True))}
    save_weights(net, output_dir)
    fingerprint = fingerprint_json([fingerprint_files([output_dir / WEIGHTS]), how])
    facts = {"network": network | sizes, "method": how, "encoder": str(encoder), "measured": measured}
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint, inputs=inputs, config=config, **facts)
    return measured


def learner_of(method: Method, net: nn.Module, moves: Moves, batch_size: int, seed: int) -> Learner:
    """Return ``method``'s learning of ``net`` from ``moves``, each drawn alike; a batch is a pure function of (seed, step)."""

    def batch(step: int) -> Moves:
        rng = np.random.default_rng([seed, step])
        return moves.rows(torch.from_numpy(rng.integers(len(moves), size=batch_size)))

    def loss(net: nn.Module, batch: Moves, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        terms = method.loss(net, batch)
        return sum(terms.values()), terms

    return Learner(net, batch, loss)


def moves_in(latents: Latents, store: EpisodeStore, chunk: int) -> list[Moves]:
    """Return the moves of every episode of ``store``."""
    latents.policy.check(store.spec.to_json())
    found = []
    for i, meta in enumerate(store.metas):
        if meta.length:
            episode = store.episode(i, cameras=list(latents.policy.inputs.cameras))
            found.append(moves_of_episode(latents, episode, meta.success == 1, chunk))
    return found


def moves_of_episode(latents: Latents, episode: Episode, succeeded: bool, chunk: int) -> Moves:
    """Return the moves of one episode as the policy's encoder and action normaliser see it."""
    action = latents.policy.normalizers.by_key[ACTION].normalize(torch.from_numpy(episode.action)).numpy()
    return moves_of(latents.of_episode(episode), action, steps_to_go(episode.reward, succeeded), chunk)


def load_values(path: Path | str, latents: Latents) -> tuple[nn.Module, Method, dict[str, Any]]:
    """Return the finished critic at ``path``, its method and its record; refuse another encoder than ``latents``."""
    record = read_artefact(Path(path), KIND)
    if record["inputs"]["policy"] != latents.policy.weights:
        raise UserError(f"{path} was trained on the encoder of policy {record['inputs']['policy']}, not on {latents.policy.weights}")
    settings = dict(record["method"])
    method = METHODS[settings.pop("name")](**settings)
    net = method.build(**record["network"])
    load_weights(net, Path(path), "the critics")
    return net.eval().requires_grad_(False), method, record
