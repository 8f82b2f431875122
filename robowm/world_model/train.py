"""Train a world model on stores of episodes: demonstrations, rollouts with their failures, anything with actions in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from robowm.artefacts import claim, fingerprint_files, fingerprint_json, write_artefact
from robowm.data.normalize import Normalizer
from robowm.data.sampler import ClipSampler, StoreShare
from robowm.data.spec import ACTION, STATE
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.train.distributed import Precision
from robowm.train.learner import Learner, derive_seed, fit
from robowm.train.log import LOG, Tracker, read_log
from robowm.train.optim import OptimConfig
from robowm.world_model.build import build
from robowm.world_model.clips import Clips, Layout, clips_of, to_tensors
from robowm.world_model.losses import Corruption, supervised_loss

KIND = "world_model"
WEIGHTS = "model.safetensors"


def run(
    *,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    world_model: Mapping[str, Any],
    steps: int,
    optim: OptimConfig,
    batch_size: int,
    seed: int,
    output_dir: Path | str,
    pinned: Sequence[str] = (),
    context: int = 2,
    chunk: int = 4,
    corruption: Corruption = Corruption(),  # noqa: B008 (frozen)
    device: str = "auto",
    precision: Precision = "auto",
    log_every: int = 100,
    save_every: int = 1000,
    tracker: Tracker | None = None,
) -> dict[str, Any]:
    """Train on ``stores`` and return the last log line.

    ``world_model`` is a config node (``_target_`` and settings) of a network with the signature of ``world_model.model.ActionUNet``.
    ``pinned`` names the cameras whose first frame stays in the context: fixed ones (a moving camera's first frame misleads). The folder
    becomes an artefact with the averaged weights. Interrupted and called again it resumes exactly.
    """
    output_dir = Path(output_dir)
    shares = [share if isinstance(share, StoreShare) else StoreShare(**share) for share in stores]
    if not shares:
        raise UserError("stores is empty; name at least one store")
    opened = [EpisodeStore.open(share.path) for share in shares]
    inputs = {f"store{i}": store.fingerprint() for i, store in enumerate(opened)}
    described = [{key: value for key, value in asdict(share).items() if key != "path"} for share in shares]
    config = {"world_model": dict(world_model), "stores": described, "steps": steps, "optim": asdict(optim), "batch_size": batch_size}
    config |= {"seed": seed, "pinned": list(pinned), "context": context, "chunk": chunk, "corruption": asdict(corruption)}
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return read_log(output_dir / LOG)[-1]
    layout = Layout.of(opened[0].spec, pinned, context, chunk, *(_normalizer(opened, key) for key in (STATE, ACTION)))
    torch.manual_seed(derive_seed(seed))
    net = build(world_model, layout)
    sampler = ClipSampler(
        shares,
        cameras=layout.cameras,
        obs_offsets=layout.obs_offsets,
        action_offsets=layout.action_offsets,
        batch_size=batch_size,
        seed=seed,
        anchors="future",
    )

    def loss(model, clips: Clips, generator: torch.Generator):
        return supervised_loss(model, *to_tensors(clips, layout), corruption, generator)

    averaged = fit(
        Learner(net, lambda step: clips_of(sampler, step, layout), loss),
        steps=steps,
        optim=optim,
        seed=seed,
        output_dir=output_dir,
        device=device,
        precision=precision,
        log_every=log_every,
        save_every=save_every,
        config={"inputs": inputs, "config": config},
        tracker=tracker,
        label="train world model",
    )
    return _seal(output_dir, averaged, layout, opened[0], inputs, config)


def _normalizer(stores: Sequence[EpisodeStore], key: str) -> Normalizer:
    names = stores[0].spec.state_names if key == STATE else stores[0].spec.action_names
    return Normalizer.fit([store.rows(i, key) for store in stores for i in range(len(store))], names)


def _seal(output_dir: Path, net, layout: Layout, store: EpisodeStore, inputs: dict, config: dict) -> dict[str, Any]:
    try:
        save_file({name: value.contiguous().cpu() for name, value in net.state_dict().items()}, output_dir / WEIGHTS)
    except OSError as error:
        raise UserError(f"cannot write {output_dir / WEIGHTS}: {error}; free some space and run again, it resumes") from error
    described = layout.to_json()
    fingerprint = fingerprint_json([fingerprint_files([output_dir / WEIGHTS]), config["world_model"], described])
    parameters = int(np.sum([p.numel() for p in net.parameters()]))
    write_artefact(
        output_dir,
        kind=KIND,
        fingerprint=fingerprint,
        inputs=inputs,
        config=config,
        layout=described,
        spec=store.spec.to_json(),
        parameters=parameters,
    )
    return read_log(output_dir / LOG)[-1]
