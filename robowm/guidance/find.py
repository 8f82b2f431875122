"""``robowm find-phases``: phases and targets of a policy's demonstrations, as an artefact.

``output_dir`` holds ``phases.safetensors`` (the table of ``Phases`` and every demonstrated latent), ``timeline.json`` (phase and soft
distance over some demonstrations, for the report) and ``artefact.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from robowm.artefacts import claim, fingerprint_files, fingerprint_json, read_artefact, write_artefact, write_json
from robowm.data.shares import StoreShare, open_shares
from robowm.errors import UserError
from robowm.guidance.dynamics import encoded
from robowm.guidance.phases import Phases, find_phases
from robowm.guidance.targets import Targets
from robowm.policy.latents import Latents, load_denoiser
from robowm.policy.lerobot import DenoisingAdapter

KIND = "phases"
TABLE, TIMELINE = "phases.safetensors", "timeline.json"
SHOWN = 3  # demonstrations in the timeline


def run(
    *,
    encoder: Path | str,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    output_dir: Path | str,
    phases: int = 4,
    prototypes: int = 100,
    clusters_per_phase: int = 10,
    temperature_percentile: float = 70,
    seed: int = 0,
    device: str = "auto",
) -> dict[str, Any]:
    """Find ``phases`` phases in the demonstrations ``stores`` as the encoder of the policy folder ``encoder`` sees them.

    Returns the table's facts: temperatures, percentiles of the demonstrations' soft distances and the phases' starts.
    """
    output_dir = Path(output_dir)
    shares, opened, inputs = open_shares(stores)
    adapter = load_denoiser(encoder, device=device)
    inputs["policy"] = adapter.weights
    settings = {"phases": phases, "prototypes": prototypes, "clusters_per_phase": clusters_per_phase}
    settings |= {"temperature_percentile": temperature_percentile, "seed": seed}
    for name in ("phases", "prototypes", "clusters_per_phase"):
        if settings[name] < 1:
            raise UserError(f"{name}={settings[name]}; it must be at least 1")
    config = {"stores": [share.settings() for share in shares], **settings}
    if (finished := claim(output_dir, kind=KIND, inputs=inputs, config=config)) is not None:
        return finished["measured"]
    latents = Latents(adapter)
    episodes = [rows for share, store in zip(shares, opened, strict=True) for rows, _ in encoded(latents, store, share.only_success)]
    if len(episodes) < 2 or sum(map(len, episodes)) < phases * clusters_per_phase:
        raise UserError(
            f"{[str(share.path) for share in shares]} hold {len(episodes)} demonstrations of {sum(map(len, episodes))} moments in all; "
            f"{phases} phases of {clusters_per_phase} clusters need more: add demonstrations or ask for fewer"
        )
    found = find_phases(episodes, latents.seen, **settings)
    arrays = {field.name: getattr(found, field.name) for field in fields(Phases)}
    save_file({**arrays, "demonstrated": np.concatenate(episodes).astype(np.float32)}, output_dir / TABLE)
    targets = Targets.of(found, torch.from_numpy(np.concatenate(episodes)), latents.seen)
    write_json(output_dir / TIMELINE, [timeline(torch.from_numpy(rows), targets) for rows in episodes[:SHOWN]])
    measured = {name: arrays[name].tolist() for name in ("temperature", "percentiles", "starts")}
    fingerprint = fingerprint_json([fingerprint_files([output_dir / TABLE]), latents.seen])
    write_artefact(output_dir, kind=KIND, fingerprint=fingerprint, inputs=inputs, config=config, seen=latents.seen, measured=measured)
    return measured


def timeline(latents: torch.Tensor, targets: Targets) -> dict[str, list]:
    """Return the nearest phase of each moment of a demonstration f32 [T + 1, D], and its soft distance to each phase [P, T + 1]."""
    count = len(targets.prototypes)
    distance = torch.stack([targets.soft_distance(latents, torch.full((len(latents),), p)) for p in range(count)])
    return {"phase": distance.argmin(0).tolist(), "distance": [[round(float(x), 4) for x in row] for row in distance]}


def load_targets(path: Path | str, policy: DenoisingAdapter) -> Targets:
    """Load the finished artefact at ``path``, which must have been made with the encoder of ``policy``."""
    path = Path(path)
    record = read_artefact(path, KIND)
    if record["inputs"]["policy"] != policy.weights:
        raise UserError(
            f"{path} was made with the encoder of policy {record['inputs']['policy']}, this policy is {policy.weights}; find phases for it"
        )
    try:
        arrays = load_file(path / TABLE)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path / TABLE} is missing or damaged ({error}); delete {path} and find phases again") from error
    demonstrated = torch.from_numpy(arrays.pop("demonstrated"))
    return Targets.of(Phases(**arrays), demonstrated, record["seen"], policy.device)
