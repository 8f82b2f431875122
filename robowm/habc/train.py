"""``robowm train-critics``: viability and efficiency of a policy's states, learned from its own episodes with a frozen encoder.

``output_dir`` holds ``model.safetensors``, the training log and ``artefact.json`` with what was measured on held-out episodes: ranking and
calibration of viability, and how well the time to success is told.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from robowm.artefacts import claim, fingerprint_files, fingerprint_json, read_artefact, write_artefact
from robowm.data.sampler import held_out
from robowm.data.shares import StoreShare, open_shares
from robowm.data.store import EpisodeStore
from robowm.errors import UserError, nearest
from robowm.habc.credit import assign, policies_of
from robowm.habc.critics import CriticLoss, Critics, Target, monte_carlo
from robowm.habc.states import Encoded, States, StateSampler
from robowm.metrics.calibration import auc, reliability
from robowm.policy.latents import Latents, load_denoiser
from robowm.policy.lerobot import DenoisingAdapter
from robowm.train.learner import Fitting, Learner, derive_seed, fit
from robowm.train.optim import OptimConfig
from robowm.train.weights import WEIGHTS, load_weights, save_weights

log = logging.getLogger(__name__)
KIND = "critics"
OPTIM = OptimConfig(lr=1e-3, weight_decay=1e-3, betas=(0.9, 0.99), warmup_steps=50, ema=0.995)


def run(
    *,
    encoder: Path | str,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    output_dir: Path | str,
    steps: int = 1500,
    chunk: int | None = None,
    target: Target = monte_carlo,
    margin: int = 10,
    whole_episode: bool = False,
    any_policy: bool = False,
    outcomes_of: Sequence[str | Path] | None = None,
    holdout: float = 0.2,
    width: int = 64,
    depth: int = 1,
    dropout: float = 0.2,
    batch_size: int = 256,
    optim: OptimConfig = OPTIM,
    seed: int = 0,
    device: str = "auto",
    **fitting: Unpack[Fitting],
) -> dict[str, Any]:
    """Train on ``stores`` with the encoder of the finished policy folder ``encoder`` and return what was measured.

    Labels follow ``credit.assign``: ``margin`` steps before take-overs are left out, ``whole_episode`` switches the credit rule off, and
    only episodes of the policy ``encoder`` itself count unless ``any_policy``. ``outcomes_of`` names the stores whose outcomes viability
    learns from (None: all): where a person rescued whatever was about to fail, only what went well keeps a label, and viability comes out
    too high. ``chunk`` steps make a window, by default as many as the policy executes. ``holdout`` is the share of start seeds whose
    episodes are only measured on. UserError where nothing is labelled.
    """
    output_dir = Path(output_dir)
    shares, opened, inputs = open_shares(stores)
    policy = load_denoiser(encoder, device=device)
    inputs["policy"] = policy.weights
    chunk = policy.model.config.n_action_steps if chunk is None else chunk
    rule = {"chunk": chunk, "margin": margin, "whole_episode": whole_episode}
    _check(holdout, **rule)
    network = {"chunk": chunk, "width": width, "depth": depth, "dropout": dropout}
    outcomes = teaches([str(share.path) for share in shares], outcomes_of)
    config = {
        "stores": [share.settings() for share in shares],
        **rule,
        "any_policy": any_policy,
        "outcomes_of": outcomes,
        "network": network,
    }
    config |= {"target": named(target), "holdout": holdout, "steps": steps, "optim": asdict(optim), "batch_size": batch_size, "seed": seed}
    if (finished := claim(output_dir, kind=KIND, inputs=inputs, config=config)) is not None:
        return finished["measured"]
    look = partial(encoded, Latents(policy), any_policy=any_policy, **rule)
    seen = (look(store, share, holdout, outcomes=teach) for share, store, teach in zip(shares, opened, outcomes, strict=True))
    training, measuring = zip(*seen, strict=True)
    weights = [share.share for share in shares]
    states = _labelled(States.of(training, weights, chunk), opened, policy)
    torch.manual_seed(derive_seed(seed))
    net = fit(
        Learner(Critics(states.latent.shape[1], **network), StateSampler(states, batch_size, seed).batch, CriticLoss(target)),
        steps=steps,
        optim=optim,
        seed=seed,
        output_dir=output_dir,
        config={"inputs": inputs, "config": config},
        label="train critics",
        device=device,
        **fitting,
    ).cpu()
    successes = sum(bool(credit.timed.any()) for episodes in training for _, credit in episodes)
    measured = measure(net, States.of(measuring, weights, chunk) if any(map(len, measuring)) else None)
    measured["stores"] = [_of_store(measure(net, States.of([own], [1.0], chunk) if own else None)) for own in measuring]
    measured |= {"auc_training": measure(net, states)["auc"], "labelled_steps": len(states.judged), "successes": successes}
    _seal(net, output_dir, inputs, config, encoder=str(encoder), measured=measured)
    return measured


def _seal(net: Critics, output_dir: Path, inputs: dict[str, Any], config: dict[str, Any], **facts: Any) -> None:
    save_weights(net, output_dir)
    fingerprint = fingerprint_json([fingerprint_files([output_dir / WEIGHTS]), net.facts])
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint, inputs=inputs, config=config, network=net.facts, **facts)


def encoded(
    latents: Latents, store: EpisodeStore, share: StoreShare, holdout: float, *, any_policy: bool, outcomes: bool, **rule: Any
) -> tuple[list[Encoded], list[Encoded]]:
    """Return the episodes of ``store`` that count, with what they may teach: those to train on and those to measure on.

    Without ``outcomes`` none of their steps has a viability label.
    """
    policy = latents.policy
    policy.check(store.spec.to_json())
    aside = held_out(store.metas, holdout)
    found: tuple[list[Encoded], list[Encoded]] = ([], [])
    for i, meta in enumerate(store.metas):
        if (share.only_success and meta.success != 1) or meta.length == 0:
            continue
        episode = store.episode(i, cameras=list(policy.inputs.cameras))
        own = any_policy or str(meta.source.policy).startswith(policy.weights)
        credit = assign(meta, episode.controller, episode.segment, episode.reward, own=own, **rule)
        credit = credit if outcomes else replace(credit, outcome=np.full_like(credit.outcome, np.nan))
        found[int(aside[i])].append((latents.of_episode(episode), credit))
    return found


@torch.no_grad()
def measure(net: Critics, states: States | None) -> dict[str, Any]:
    """Return ranking (AUC) and calibration (ECE, reliability) of viability per step, and for efficiency the correlation with the steps to
    go as they came out and the mean error in steps. None where there is nothing to measure on.

    ``auc_ahead`` leaves out the steps after the goal first held, where a success is plain to see.
    """
    names = ("auc", "auc_ahead", "ece", "correlation", "error_steps")
    if states is None:
        return dict.fromkeys(names) | {"held_out_steps": 0}
    net.eval()
    found: dict[str, Any] = dict.fromkeys(names) | {"held_out_steps": len(states.judged)}
    if len(states.judged):
        probability = torch.sigmoid(net(torch.from_numpy(states.latent[states.judged]))[0]).numpy()
        succeeds = states.outcome > 0.5
        bins = reliability(probability, succeeds)
        found |= {"auc": _plain(auc(probability, succeeds)), "ece": bins.expected_calibration_error}
        found["auc_ahead"] = _plain(auc(probability[states.ahead], succeeds[states.ahead]))
        found["reliability"] = {
            "predicted": [_plain(x) for x in bins.predicted],
            "observed": [_plain(x) for x in bins.observed],
            "count": bins.count.tolist(),
        }
    if len(states.timed):
        togo = -net(torch.from_numpy(states.latent[states.timed]))[1].numpy()
        found["error_steps"] = float(np.abs(togo - states.togo).mean() * net.chunk)
        varied = togo.std() > 0 and states.togo.std() > 0
        found["correlation"] = float(np.corrcoef(togo, states.togo)[0, 1]) if varied else None
    return found


def _of_store(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is told of one store's held-out episodes."""
    return {name: measured[name] for name in ("auc", "auc_ahead", "ece", "held_out_steps")}


def load_critics(path: Path | str, encoder: Path | str | None = None, device: str = "auto") -> tuple[Critics, Latents, dict[str, Any]]:
    """Return the finished critics at ``path``, the encoder that they look through, and their record.

    ``encoder`` is the folder of that policy, by default where it was when they were trained.
    """
    path = Path(path)
    record = read_artefact(path, KIND)
    folder = policy_of(path, record, encoder)
    policy = load_denoiser(folder, device=device)
    if record["inputs"]["policy"] != policy.weights:
        raise UserError(f"{path} was trained on the encoder of policy {record['inputs']['policy']}, {folder} is {policy.weights}")
    net = Critics(**record["network"])
    load_weights(net, path, "the critics")
    return net.eval().requires_grad_(False), Latents(policy), record


def policy_of(path: Path, record: Mapping[str, Any], encoder: Path | str | None) -> Path:
    """Return the folder of the policy that the critics at ``path`` look through, ``encoder`` or where it was when they were trained."""
    folder = Path(record["encoder"] if encoder is None else encoder)
    if encoder is None and not folder.is_dir():
        raise UserError(f"{path} was trained with the encoder of {folder}, which is gone; give encoder=<its folder>")
    return folder


def named(function: Any) -> dict[str, Any]:
    """Return where ``function``, or the one behind a partial of it, is found, and its settings: as JSON for a record."""
    inner = getattr(function, "func", function)
    return {"_target_": f"{inner.__module__}.{inner.__qualname__}", **getattr(function, "keywords", {})}


def teaches(paths: Sequence[str], named: Sequence[str | Path] | None) -> list[bool]:
    """Return for each of the stores ``paths`` whether its outcomes count: all do, or the ``named`` ones, which must be among them."""
    chosen = paths if named is None else [str(path) for path in named]
    if unknown := [path for path in chosen if path not in paths]:
        raise UserError(f"outcomes_of names {unknown[0]}, which is none of the stores; {nearest(unknown[0], paths)}")
    return [path in chosen for path in paths]


def _check(holdout: float, chunk: int, margin: int, whole_episode: bool) -> None:
    if chunk < 1 or margin < 0 or not 0 <= holdout < 1:
        raise UserError(f"chunk={chunk}, margin={margin}, holdout={holdout}; they must be at least 1, at least 0, and in [0, 1)")


def _labelled(states: States, stores: Iterable[EpisodeStore], policy: DenoisingAdapter) -> States:
    """Return ``states``; raise UserError where no step has a label, and warn where all have the same."""
    if not len(states.judged):
        found = policies_of([meta for store in stores for meta in store.metas])
        raise UserError(
            f"no step of the stores has an outcome of the policy {policy.weights}: rollouts there are by {', '.join(found) or 'nobody'}; "
            "add rollouts of it, judged, or set any_policy=true"
        )
    if len(set(states.outcome.tolist())) == 1:
        log.warning(
            "all %d labelled steps come from episodes that %s; viability cannot tell states apart, add the other kind",
            len(states.judged),
            "succeeded" if states.outcome[0] else "failed",
        )
    return states


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
