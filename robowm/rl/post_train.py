"""Post-train a world model by reinforcement learning on its own rollouts (PersistWorld, Bardhan et al., arXiv 2603.25685).

Each update: the old copy rolls a random number of chunks, samples K continuations, the true frames rank them, and the contrastive loss
moves the model towards the better and away from the worse ones, at every noise level of the sampler. Then old follows the model a little.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from robowm.artefacts import claim, read_artefact
from robowm.data.sampler import ClipSampler
from robowm.data.shares import StoreShare, open_shares
from robowm.data.spec import tasks_of
from robowm.diffusion.flow import add_noise, spread
from robowm.errors import UserError
from robowm.metrics.fidelity import FOREGROUND, LPIPS_SMALLEST
from robowm.rl.experience import Experience, Sampling, gather
from robowm.rl.losses import nft_errors, old_decay, reference_errors
from robowm.rl.reference import Reference, disputed, is_due, moved_share
from robowm.train.learner import Fitting, Learner, fit
from robowm.train.log import LOG, read_log
from robowm.train.optim import OptimConfig
from robowm.types import ClipBatch
from robowm.world_model.losses import check_fits, masked_mean, masks_of, offsets
from robowm.world_model.model import WorldModelNet
from robowm.world_model.predict import KIND, load_world_model, seal

OPTIM = OptimConfig(lr=2e-4, weight_decay=0.0, betas=(0.9, 0.99), warmup_steps=20, schedule="constant", ema=0.9)


@dataclass(frozen=True)
class Nft:
    """Settings of the loss and of the old copy."""

    sampling: Sampling = field(default_factory=Sampling)
    beta: float = 1.0  # smaller: faster, less stable
    reference: Reference = field(default_factory=Reference)
    reuse: int = 1  # updates on the same candidates, each with fresh noise; old stands still meanwhile
    decay_first: float = 0.5  # old <- d old + (1 - d) theta, d = min(first + growth * round, limit)
    decay_growth: float = 0.01
    decay_limit: float = 0.9

    def __post_init__(self) -> None:
        if not self.beta > 0 or self.reuse < 1:
            raise UserError(f"nft.beta={self.beta} (above 0), nft.reuse={self.reuse} (1 or more)")
        if not (0 <= self.decay_first <= 1 and 0 <= self.decay_limit <= 1 and self.decay_growth >= 0):
            raise UserError(
                f"nft.decay_first={self.decay_first}, nft.decay_limit={self.decay_limit} (both from 0 to 1), "
                f"nft.decay_growth={self.decay_growth} (0 or more)"
            )


class PostTrained(nn.Module):
    """The model in training with its old and reference copies: all that a checkpoint must hold, old and the counter among it."""

    def __init__(self, base: WorldModelNet) -> None:
        super().__init__()
        self.theta, self.old, self.ref = base, copy.deepcopy(base), copy.deepcopy(base)
        self.old.requires_grad_(False)
        self.ref.requires_grad_(False)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))  # updates since the reference was set
        self.register_buffer("distance", torch.zeros(()))  # between theta and the reference at the last update
        self.register_buffer("share", torch.full((), -1.0))  # of disputed candidates; -1: as configured
        self.register_buffer("recent", torch.full((20,), -1.0))  # mean disagreement of the last rounds; -1: none yet
        self.held: tuple[Experience, dict[str, Tensor]] | None = None  # the round's candidates

    @torch.no_grad()
    def follow(self, how: Nft) -> None:
        """Move old towards theta and the reference where it is due, as is done between rounds; before the first there is nothing to do."""
        if self.updates == 0:
            return
        d = old_decay(int(self.updates) // how.reuse - 1, how.decay_growth, how.decay_limit, how.decay_first)
        torch._foreach_lerp_(list(self.old.parameters()), list(self.theta.parameters()), 1 - d)
        if is_due(how.reference, float(self.distance), int(self.age)):
            self.ref.load_state_dict(self.theta.state_dict())
            self.age.zero_()

    def hold(self, how: Nft, overrated: Tensor) -> Tensor:
        """Return bool [M]: the candidates of a new round that the reference holds, and remember their disagreement ``overrated`` [M]."""
        if how.sampling.main is None:
            return torch.ones_like(overrated, dtype=torch.bool)
        now = float(overrated.clamp_min(0).mean())
        share = moved_share(how.reference.share if self.share < 0 else float(self.share), now, self.recent[self.recent >= 0])
        self.share.fill_(share)
        self.recent.copy_(torch.cat([self.recent[1:], torch.full_like(self.recent[:1], now)]))
        return disputed(overrated, share)


@dataclass(frozen=True)
class NftLoss:
    """Loss for ``robowm.train.learner`` over clips of ``how.sampling.chunks`` chunks."""

    how: Nft

    def __call__(self, model: PostTrained, batch: ClipBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        if int(model.updates) % self.how.reuse == 0:
            model.follow(self.how)
            model.held = self.round(model, batch, generator)
        model.updates += 1
        model.age += 1
        experience, terms = model.held
        levels = model.theta.design.schedule(self.how.sampling.steps)[:-1].to(experience.sample.device)
        found = [self.at_levels(model, experience, row, generator) for row in levels]
        means = {name: torch.stack([part[name] for part in found]).mean() for name in found[0]}
        model.distance.copy_(means.get("distance", torch.zeros(())).detach())
        loss = means["nft"] + self.how.reference.weight * means.get("reference", 0.0)
        return loss, {**{name: mean.detach() for name, mean in means.items()}, **terms}

    def round(self, model: PostTrained, batch: ClipBatch, generator: torch.Generator) -> tuple[Experience, dict[str, Tensor]]:
        """Return new candidates from the old copy, and what is logged of them; ``near`` says which the reference holds."""
        experience, terms = gather(model.old, batch, self.how.sampling, generator)
        near = model.hold(self.how, experience.overrated)
        return replace(experience, near=near), {**terms, "held": near.float().mean()}

    def at_levels(self, model: PostTrained, experience: Experience, row: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the mean errors of the kept candidates, noised afresh to a row [F] of the sampler's levels."""
        x0, context = experience.sample, experience.context
        levels = row.expand(x0.shape[:2])
        x = add_noise(x0, torch.randn(x0.shape, generator=generator, device=x0.device), levels)
        theta = model.theta.x0(x, levels, context).float()
        with torch.no_grad():
            old = model.old.x0(x, levels, context).float()
        ones = torch.ones(experience.valid.shape, device=x0.device)
        errors = {"nft": nft_errors(theta, old, x0, experience.r, self.how.beta)}
        if self.how.reference.weight > 0:
            with torch.no_grad():
                ref = model.ref.x0(x, levels, context).float()
            errors["distance"] = reference_errors(theta, ref)
            errors["reference"] = errors["distance"] * spread(experience.near, theta)
        valid = experience.valid & (levels > 0)  # rows of the chunk that are finished by now are no longer denoised
        if not valid.any():  # no group had candidates that differ: nothing to learn, but the graph must reach every weight
            return {name: 0 * error.mean() for name, error in errors.items()}
        return {name: masked_mean(error.mean(-1), valid, ones) for name, error in errors.items()}


def run(
    *,
    init_from: Path | str,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    output_dir: Path | str,
    steps: int,
    nft: Nft,
    batch_size: int = 16,
    optim: OptimConfig = OPTIM,
    seed: int = 0,
    save_every: int = 50,
    **fitting: Unpack[Fitting],
) -> dict[str, Any]:
    """Post-train the finished world model ``init_from`` on clips of ``stores`` and return the last log line.

    Every update looks at ``batch_size`` clips: groups of candidates that share a history. ``output_dir`` becomes a world-model artefact
    like any other, whose predictions take ``nft.sampling.steps`` sampling steps. Interrupted and called again it resumes exactly.
    """
    output_dir, init_from = Path(output_dir), Path(init_from)
    shares, opened, inputs = open_shares(stores)
    base = read_artefact(init_from, KIND)
    inputs["init_from"] = base["fingerprint"]
    depth = nft.sampling.depth
    check_fits(shares, "nft.sampling.depth", depth, base["model"]["design"]["chunk"], more=nft.sampling.chunks - depth, least=0)
    described = {"stores": [share.settings() for share in shares], "nft": asdict(nft), "batch_size": batch_size}
    config = {**described, "steps": steps, "optim": asdict(optim), "seed": seed}
    if claim(output_dir, kind=KIND, inputs=inputs, config=config) is not None:
        return read_log(output_dir / LOG)[-1]
    if save_every % nft.reuse:
        raise UserError(f"save_every={save_every} with nft.reuse={nft.reuse}; save after whole rounds: make it a multiple of reuse")
    net = load_world_model(init_from, device="cpu").net
    if "lpips" in nft.sampling.reward and min(net.layout.size) < LPIPS_SMALLEST:
        height, width = net.layout.size
        raise UserError(f"LPIPS needs pictures of at least {LPIPS_SMALLEST} pixels, the model's are {height}x{width}; set reward=pixels")
    sampler = clips(net, shares, batch_size, seed, nft.sampling)
    model = fit(
        Learner(PostTrained(net), sampler.batch, NftLoss(nft)),
        steps=steps,
        optim=optim,
        seed=seed,
        output_dir=output_dir,
        config={**described, "inputs": inputs},
        label="post-train world model",
        save_every=save_every,
        **fitting,
    )
    facts = {**base["model"], "design": {**base["model"]["design"], "sampling_steps": nft.sampling.steps}}
    tasks = tasks_of((store.metas for store in opened), base.get("tasks", ()))
    seal(model.theta, output_dir, facts, inputs=inputs, config=config, fps=base["fps"], tasks=tasks)
    return read_log(output_dir / LOG)[-1]


def clips(net: WorldModelNet, shares: Sequence[StoreShare], batch_size: int, seed: int, how: Sampling) -> ClipSampler:
    """Return the sampler of clips of ``how.chunks`` chunks for an existing model, with masks where its reward looks at them."""
    observed, acted = offsets(net.design, how.chunks)
    names = list(net.layout.cameras)
    if not FOREGROUND.keys().isdisjoint(how.reward):
        names += masks_of(shares, list(net.layout.cameras))
    sampler = ClipSampler(
        shares, cameras=names, obs_offsets=observed, action_offsets=acted, batch_size=batch_size, seed=seed, anchors="future"
    )
    widths = (sampler.reader.state.shape[-1], sampler.reader.action.shape[-1])
    wanted = (net.layout.state_dim, len(net.normalize_action.low))
    if widths != wanted:
        raise UserError(f"{shares[0].path} has (state, action) sizes {widths}, the world model was trained on {wanted}; use its own data")
    return sampler
