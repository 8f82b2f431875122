"""Train a world model on any mixture of stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

import torch

from robowm.artefacts import claim, read_artefact
from robowm.data.normalize import Normalizer
from robowm.data.sampler import ClipSampler
from robowm.data.shares import StoreShare, open_shares
from robowm.data.spec import tasks_of
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.train.checkpoint import config_differences
from robowm.train.learner import Fitting, Learner, derive_seed, fit
from robowm.train.log import LOG, read_log
from robowm.train.optim import OptimConfig
from robowm.world_model.losses import TeacherForcing, check_fits, masks_of, offsets
from robowm.world_model.model import Design, WorldModelNet, build
from robowm.world_model.predict import KIND, load_world_model, seal
from robowm.world_model.self_forcing import SelfForwarded, SelfRollout

LOSS = TeacherForcing()
OPTIM = OptimConfig(lr=1e-3, weight_decay=1e-4, betas=(0.95, 0.999), warmup_steps=100, ema=0.995)


def run(
    *,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    world_model: Design | Mapping[str, Any],
    output_dir: Path | str,
    steps: int,
    init_from: Path | str | None = None,
    batch_size: int = 8,
    loss: TeacherForcing | SelfForwarded | SelfRollout = LOSS,
    optim: OptimConfig = OPTIM,
    seed: int = 0,
    **fitting: Unpack[Fitting],
) -> dict[str, Any]:
    """Train on ``stores`` (fields of StoreShare: path, share, only_success, weights) and return the last log line.

    ``world_model`` holds the fields of ``Design``; cameras, sizes and names come from the data. ``loss`` is a dataclass that maps (model,
    batch, generator) to the loss and says how many ``chunks`` its clips have (losses.py, self_forcing.py). ``output_dir`` becomes an
    artefact with the averaged weights, normalisers and everything needed to build the model again. ``init_from`` is a finished world model
    of the same design, whose averaged weights and normalisers are continued from. Interrupted and called again it resumes exactly.
    """
    output_dir = Path(output_dir)
    design = world_model if isinstance(world_model, Design) else Design(**world_model)
    if design.lag > 0 and not loss.own_levels:
        own = "loss.supervised.own_levels" if isinstance(loss, SelfForwarded) else "loss.own_levels"
        raise UserError(f"world_model.lag={design.lag} samples rows at noise levels of their own; train with them too: {own}=0.5")
    shares, opened, inputs = open_shares(stores)
    if isinstance(loss, TeacherForcing):
        check_fits(shares, "world_model.chunk", design.chunk, 1)
    else:
        check_fits(shares, "loss.depth", loss.depth, design.chunk, more=loss.chunks - loss.depth)
    if init_from is not None:
        inputs["init_from"] = read_artefact(Path(init_from), KIND)["fingerprint"]
    described = {"world_model": vars(design), "stores": [share.settings() for share in shares], "batch_size": batch_size}
    described |= {"loss": {"_target_": f"{type(loss).__module__}.{type(loss).__qualname__}", **asdict(loss)}}
    config = {**described, "steps": steps, "optim": asdict(optim), "seed": seed}
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return read_log(output_dir / LOG)[-1]
    torch.manual_seed(derive_seed(seed))
    sampler, net = prepare(shares, design, batch_size, seed, loss)
    earlier = ()
    if init_from is not None:
        net, earlier = continued(init_from, net)
    net = fit(
        Learner(net, sampler.batch, loss),
        steps=steps,
        optim=optim,
        seed=seed,
        output_dir=output_dir,
        config={**described, "inputs": inputs},
        label="train world model",
        **fitting,
    )
    spec = opened[0].spec
    facts = {**net.facts(), "state_names": spec.state_names, "action_names": spec.action_names, "action_kind": spec.action_kind}
    tasks = tasks_of((store.metas for store in opened), earlier)
    seal(net, output_dir, facts, inputs=inputs, config=config, fps=spec.fps, tasks=tasks)
    return read_log(output_dir / LOG)[-1]


def continued(init_from: Path | str, fresh: WorldModelNet) -> tuple[WorldModelNet, tuple[str, ...]]:
    """Return the finished model at ``init_from`` to train on, which must have the design and data sizes of ``fresh``, and its tasks."""
    loaded = load_world_model(init_from, device="cpu")
    net = loaded.net
    found, wanted = ({**net_.facts(), "state": None, "action": None} for net_ in (net, fresh))
    if differing := config_differences(found, wanted):
        raise UserError(f"{init_from} cannot be continued as asked: {'; '.join(differing)}; ask for the same world_model, or start afresh")
    return net.train(), loaded.tasks


def prepare(
    shares: Sequence[StoreShare], design: Design, batch_size: int, seed: int, loss: TeacherForcing | SelfForwarded | SelfRollout
) -> tuple[ClipSampler, WorldModelNet]:
    """Return the sampler of the clips that ``loss`` trains on and a fresh model whose normalisers fit all of the data."""
    spec = EpisodeStore.open(shares[0].path).spec
    cameras = list(spec.pictures()) if design.cameras is None else list(design.cameras)
    spec.check_cameras(cameras, str(shares[0].path), "world_model.cameras")
    observed, acted = offsets(design, loss.chunks)
    shown = [*cameras, *masks_of(shares, cameras)] if loss.foreground_weight > 0 else cameras
    sampler = ClipSampler(
        shares, cameras=shown, obs_offsets=observed, action_offsets=acted, batch_size=batch_size, seed=seed, anchors="future"
    )
    state = Normalizer.fit(sampler.reader.state, spec.state_names)
    action = Normalizer.fit(sampler.reader.action, spec.action_names)
    return sampler, build(design, {name: spec.cameras[name] for name in cameras}, state, action)
