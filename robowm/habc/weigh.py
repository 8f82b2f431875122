"""``robowm weigh``: a weight for each step of some stores, as a sidecar beside each of them, and an artefact with what to log of it.

Training reads them with ``stores='[{path: data/rollouts, weights: habc}]'``. One mean spans all the stores of a call, so weigh those
together that are trained on together.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robowm.artefacts import claim, fingerprint_json, read_artefact, write_artefact
from robowm.data.shares import as_entries, open_shares
from robowm.data.sidecar import read_sidecar, write_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.habc.credit import Credit, assign
from robowm.habc.critics import Critics
from robowm.habc.train import load_critics, named, policy_of
from robowm.habc.train_values import KIND as VALUES
from robowm.habc.train_values import load_values, moves_of_episode
from robowm.habc.value_critics import Method
from robowm.habc.weights import Steps, Values, Weighting, advantages, clip_logit, summary
from robowm.policy.latents import Latents, load_denoiser
from robowm.progress import Progress

log = logging.getLogger(__name__)
KIND = "weights"
LITTLE = 0.1  # effective share of the steps below which a warning is due


@dataclass(frozen=True)
class Weighed:
    """A store to weigh: all of it."""

    path: str | Path


@dataclass(frozen=True)
class Judged:
    """An episode of T steps as its critics see it."""

    credit: Credit
    logit: torch.Tensor  # f32 [T + 1]
    value: torch.Tensor  # f32 [T + 1], in chunks


def run(
    *,
    stores: Sequence[Weighed | Mapping[str, Any] | str | Path],
    output_dir: Path | str,
    weighting: Weighting,
    name: str,
    critics: Path | str | None = None,
    encoder: Path | str | None = None,
    margin: int = 10,
    device: str = "auto",
) -> dict[str, Any]:
    """Write sidecar ``name`` into each of ``stores`` and return the logged numbers.

    It holds "weight" f32 [steps], with HABC's critics also "viability", "gain_viability" and "gain_efficiency", with a rival's "advantage",
    and "improved" int64 [steps] where the weighting marks steps. ``weighting`` maps ``Steps`` to ``Weights`` (weights.py, rivals.py).
    ``critics`` is a finished folder of train-critics, ``encoder`` the policy folder that they look through (None: where it was). The
    ``margin`` steps before a take-over weigh 0.
    """
    output_dir = Path(output_dir)
    entries = as_entries(Weighed, stores)
    _, opened, inputs = open_shares([entry.path for entry in entries])
    if margin < 0:
        raise UserError(f"margin={margin}; it must be at least 0")
    if empty := [store.path for store in opened if not store.lengths.sum()]:
        raise UserError(f"{empty[0]} holds no steps to weigh; record some or leave it out")
    loaded = None if critics is None else load_judge(critics, encoder, device)
    if loaded is not None:
        inputs["critics"] = loaded.fingerprint
    config = {"name": name, "weighting": named(weighting), "margin": margin}
    if (finished := claim(output_dir, kind=KIND, inputs=inputs, config=config)) is not None:
        _check_still_there(opened, name, finished["sidecars"], output_dir)
        return finished["measured"]
    credits, said, arrays = _looked_at(opened, loaded, output_dir)
    role, until = (np.concatenate([getattr(credit, key) for credit in credits]) for key in ("role", "until_takeover"))
    steps = Steps(torch.from_numpy(role).long(), torch.from_numpy(until), torch.from_numpy(until > margin), **said)
    found = weighting(steps)
    measured = summary(steps, found.weight) | found.numbers
    if measured["effective_share"] < LITTLE:
        log.warning("%s: the weights leave %.1f %% of the steps to learn from", name, 100 * measured["effective_share"])
    arrays["weight"] = found.weight.float().numpy()
    if found.improved is not None:
        arrays["improved"] = found.improved.numpy()
    ends = np.cumsum([int(store.lengths.sum()) for store in opened])[:-1]
    split = {key: np.split(array, ends) for key, array in arrays.items()}
    made_by = {"critics": inputs.get("critics", ""), "weighting": fingerprint_json(config)}
    sidecars = []
    for i, store in enumerate(opened):
        own = {key: parts[i] for key, parts in split.items()}
        write_sidecar(store, name, own, inputs=made_by)
        sidecars.append(fingerprint_arrays(own))
    facts = {"sidecars": sidecars, "measured": measured}
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint_json(sidecars), inputs=inputs, config=config, **facts)
    return measured


def fingerprint_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Return 16 hex digits over the names and contents of ``arrays``."""
    return fingerprint_json({key: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for key, array in arrays.items()})


@dataclass(frozen=True)
class Judge:
    """Finished critics: HABC's (``net`` alone), or a rival's with its method."""

    net: torch.nn.Module
    method: Method | None
    latents: Latents
    record: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        return self.record["fingerprint"]


def load_judge(path: Path | str, encoder: Path | str | None, device: str) -> Judge:
    """Return the finished critics at ``path``, of either kind."""
    if read_artefact(Path(path))["kind"] == VALUES:
        record = read_artefact(Path(path), VALUES)
        latents = Latents(load_denoiser(policy_of(Path(path), record, encoder), device=device))
        return Judge(*load_values(path, latents)[:2], latents, record)
    net, latents, record = load_critics(path, encoder, device)
    return Judge(net, None, latents, record)


def _looked_at(
    stores: Sequence[EpisodeStore], judge_by: Judge | None, output_dir: Path
) -> tuple[list[Credit], dict[str, Any], dict[str, np.ndarray]]:
    """Return the credit of every episode, and with critics what they say of every step: for ``Steps`` and as arrays for the sidecar."""
    look = credit_of if judge_by is None else partial(judge, judge_by.net, judge_by.latents)
    if judge_by is not None and judge_by.method is not None:
        look = partial(valued, judge_by)
    found = []
    with Progress(output_dir, sum(map(len, stores)), "weigh") as progress:
        for store in stores:
            if judge_by is not None:
                judge_by.latents.policy.check(store.spec.to_json())
            for i in range(len(store)):
                found.append(look(store, i))
                progress.advance()
    if judge_by is None:
        return found, {}, {}
    if judge_by.method is not None:
        advantage = torch.cat([advantage for _, advantage in found])
        return [credit for credit, _ in found], {"advantage": advantage}, {"advantage": advantage.numpy()}
    values = values_of(found, judge_by.net.chunk, judge_by.record["measured"]["successes"])
    arrays = {"viability": values.viability, "gain_viability": values.a_v, "gain_efficiency": values.a_e}
    return [episode.credit for episode in found], {"values": values}, {key: tensor.numpy() for key, tensor in arrays.items()}


def credit_of(store: EpisodeStore, i: int) -> Credit:
    """Return the credit of episode ``i`` of ``store``, without anybody's opinion."""
    episode = store.episode(i, cameras=[])
    return assign(store.meta(i), episode.controller, episode.segment, episode.reward, chunk=1)


@torch.no_grad()
def valued(judge_by: Judge, store: EpisodeStore, i: int) -> tuple[Credit, torch.Tensor]:
    """Return the credit of episode ``i`` of ``store`` and the advantage f32 [T] of its steps in a rival's eyes."""
    meta, latents = store.meta(i), judge_by.latents
    episode = store.episode(i, cameras=list(latents.policy.inputs.cameras))
    if not len(episode):
        return credit_of(store, i), torch.zeros(0)
    moves = moves_of_episode(latents, episode, meta.success == 1, judge_by.record["network"]["chunk"])
    return credit_of(store, i), judge_by.method.advantage(judge_by.net, moves)


@torch.no_grad()
def judge(critics: Critics, latents: Latents, store: EpisodeStore, i: int) -> Judged:
    """Return episode ``i`` of ``store`` with what the critics say of each of its states."""
    episode = store.episode(i, cameras=list(latents.policy.inputs.cameras))
    credit = assign(store.meta(i), episode.controller, episode.segment, episode.reward, chunk=critics.chunk)
    logit, value = critics(torch.from_numpy(latents.of_episode(episode)))
    return Judged(credit, logit, value)


def values_of(episodes: Sequence[Judged], chunk: int, successes: int) -> Values:
    """Return what the critics say of the steps of ``episodes``, one after the other."""
    _, clipped = clip_logit(torch.cat([episode.logit for episode in episodes]))
    viability, gains = [], []
    for episode in episodes:
        logit, _ = clip_logit(episode.logit)
        span, arrives = torch.from_numpy(episode.credit.span), torch.from_numpy(episode.credit.arrives)
        gains.append(advantages(logit, episode.value, span, arrives, chunk))
        viability.append(torch.sigmoid(logit[:-1]))
    a_v, a_e = (torch.cat(part) for part in zip(*gains, strict=True))
    return Values(torch.cat(viability), a_v, a_e, clipped, successes)


def _check_still_there(stores: Sequence[EpisodeStore], name: str, sidecars: Sequence[str], folder: Path) -> None:
    """Raise UserError where a finished run's sidecar is not the one it wrote."""
    for store, wanted in zip(stores, sidecars, strict=True):
        if fingerprint_arrays(read_sidecar(store, name)) != wanted:
            raise UserError(f"sidecar {name!r} of {store.path} was written anew since {folder} made it; delete {folder} to weigh again")
