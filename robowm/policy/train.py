"""Clone recorded actions: a fresh policy (``train-policy``) or the continuation of one (``improve``), on any mixture of stores."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from robowm.artefacts import claim, fingerprint_files, read_artefact, write_artefact
from robowm.data.sampler import ClipSampler
from robowm.data.shares import StoreShare, open_shares
from robowm.data.spec import ACTION, ENVIRONMENT_STATE, STATE, StoreSpec, tasks_of
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.policy.indicator import INDICATOR, conditioned, shown_indicator
from robowm.policy.lerobot import KIND, PRETRAINED, WEIGHTS, LeRobotPolicy, build, family, load_policy, pretrained_folder, save
from robowm.policy.lerobot_batch import Inputs, Normalizers, action_batch, observation_batch
from robowm.policy.losses import effective_share, weighted_mean
from robowm.train.learner import Fitting, Learner, derive_seed, fit
from robowm.train.log import LOG, read_log
from robowm.train.optim import OptimConfig
from robowm.types import ClipBatch


def run(
    *,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    steps: int,
    optim: OptimConfig,
    batch_size: int,
    seed: int,
    output_dir: Path | str,
    policy: Mapping[str, Any] | None = None,
    init_from: Path | str | None = None,
    early_steps: int = 0,
    **fitting: Unpack[Fitting],
) -> dict[str, Any]:
    """Train on ``stores`` (fields of StoreShare: path, share, only_success, weights, early_weights) and return the last log line.

    Either ``policy`` (see policy/lerobot.py ``build``) describes a fresh policy, whose normaliser is fitted on the first store; or
    ``init_from`` is a finished policy folder, whose averaged weights and normaliser are continued from. ``output_dir`` becomes an artefact
    with the averaged weights in ``pretrained_model``, in lerobot's format. Interrupted and called again it resumes exactly.

    The first ``early_steps`` updates weigh steps by ``early_weights``: a warm-up by filtered weights before HABC's (paper, section
    "weights": 500 updates with g = 1), or HABC's before those that also weigh people's steps. Where weights come with an indicator of
    improvement (RECAP), the policy becomes one that is conditioned on it.
    """
    output_dir = Path(output_dir)
    shares, opened, inputs = open_shares(stores)
    if (policy is None) == (init_from is None):
        raise UserError("give exactly one of policy (a fresh one) and init_from (a finished policy folder to continue)")
    if init_from is not None:
        inputs["init_from"] = read_artefact(Path(init_from), KIND)["fingerprint"]
    elif policy.get("pretrained_path") is not None:
        inputs["pretrained"] = fingerprint_files([pretrained_folder(policy["pretrained_path"]) / WEIGHTS])
    config = {
        "policy": None if policy is None else dict(policy),
        "stores": [share.settings() for share in shares],
        "steps": steps,
        "optim": asdict(optim),
    }
    config |= {"batch_size": batch_size, "seed": seed} | ({"early_steps": early_steps} if early_steps else {})
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return read_log(output_dir / LOG)[-1]
    start = _fresh(policy, opened[0], seed) if init_from is None else _continued(init_from, opened)
    model, observes, normalizers, spec, tasks = start
    obs_offsets, action_offsets = family(model).offsets(model.config)
    windows = {"obs_offsets": obs_offsets, "action_offsets": action_offsets}
    sampler = ClipSampler(shares, cameras=observes.cameras, **windows, batch_size=batch_size, seed=seed, early_steps=early_steps)
    if sampler.reader.improved is not None:
        model = conditioned(model)
    averaged = fit(
        Learner(model, sampler.batch, cloning_loss(normalizers, observes)),
        steps=steps,
        optim=optim,
        seed=seed,
        output_dir=output_dir,
        config={"inputs": inputs, "config": config},
        label="improve" if init_from else "train policy",
        **fitting,
    )
    known = tasks_of((store.metas for store in opened), tasks)
    return _seal(output_dir, averaged, normalizers, observes, spec, known, inputs, config)


def cloning_loss(normalizers: Normalizers, observes: Inputs):
    """Return the loss of a Learner over ClipBatches: the policy's own per-step error under one weighted mean."""

    def loss(model, clips: ClipBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        batch = observation_batch(clips.frames, clips.state, clips.environment_state, clips.task, normalizers, observes)
        batch |= action_batch(clips.action, clips.action_valid, normalizers)
        if clips.improved is not None:
            batch[INDICATOR] = shown_indicator(clips.improved, generator)
        errors, parts = family(model).errors(model, batch, generator)
        terms = {name: weighted_mean(part, clips.action_valid, clips.weight) for name, part in parts.items()}
        terms["unweighted"] = weighted_mean(errors.detach(), clips.action_valid, torch.ones_like(clips.weight))
        terms["effective_share"] = effective_share(clips.action_valid, clips.weight)
        return weighted_mean(errors, clips.action_valid, clips.weight), terms

    return loss


def _fresh(policy: Mapping[str, Any], store: EpisodeStore, seed: int):
    """Build a policy with weights that are a function of ``seed``, and fit its normalisers on ``store``; it knows no tasks yet."""
    if len(store) == 0:
        raise UserError(f"{store.path} holds no episodes; record some first")
    torch.manual_seed(derive_seed(seed))
    model, observes = build(policy, store.spec)
    names = {STATE: store.spec.state_names, ACTION: store.spec.action_names}
    if observes.environment_state:
        names[ENVIRONMENT_STATE] = store.spec.environment_state_names
    arrays = {key: [store.rows(i, key) for i in range(len(store))] for key in names}
    return model, observes, Normalizers.fit(arrays, names, model.config.normalization_mapping), store.spec, ()


def _continued(init_from: Path | str, stores: Sequence[EpisodeStore]):
    """Return model, inputs, normalisers, data specification and tasks of a finished policy, checked against every store."""
    base: LeRobotPolicy = load_policy(init_from, device="cpu")
    for store in stores:
        base.check(store.spec.to_json())
    return base.model, base.inputs, base.normalizers, base.spec, base.tasks


def _seal(output_dir: Path, model, normalizers: Normalizers, observes: Inputs, spec: StoreSpec, tasks: list[str], inputs, config):
    """Write ``pretrained_model`` (complete or not at all) and the artefact record; return the last log line."""
    temporary, target = output_dir / f".{PRETRAINED}", output_dir / PRETRAINED
    for folder in (temporary, target):
        shutil.rmtree(folder, ignore_errors=True)
    save(model.to("cpu"), normalizers, observes, temporary)
    temporary.rename(target)
    last = read_log(output_dir / LOG)[-1]
    write_artefact(
        output_dir,
        kind=KIND,
        fingerprint=fingerprint_files(sorted(target.iterdir())),
        inputs=inputs,
        config=config,
        type=model.config.type,
        observes=asdict(observes),
        normalizers=normalizers.to_json(),
        spec=spec.to_json(),
        tasks=tasks,
        parameters=sum(p.numel() for p in model.parameters()),
        last=last,
    )
    return last
