"""A policy whose sampler is guided while it acts, as a policy like any other.

    N episodes, H planned actions of A entries, J sampling steps

Beside actions it tells, for each replan, who was in control (guided where the gate opened at any step), the gate per sampling step, the
phase and the distance to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from robowm.artefacts import fingerprint_json, read_artefact
from robowm.data.spec import ACTION
from robowm.guidance.dynamics import LatentDynamics, load_dynamics
from robowm.guidance.find import load_targets
from robowm.guidance.pcg import Moment
from robowm.guidance.targets import Targets
from robowm.policy.latents import Latents, load_denoiser
from robowm.policy.lerobot import DenoisingAdapter, Recent
from robowm.policy.steps import Step
from robowm.types import Controller, Obs


class Guide(Protocol):
    """Moves a plan while it is sampled: ``Pcg``, ``Lpb``."""

    def adjust(self, moment: Moment, x_t: Tensor, step: Step, clean: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...

    def advance(self, latent: Tensor, targets: Targets, phase: Tensor, streak: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Guided:
    """Memory of N episodes."""

    recent: Recent | None
    phase: Tensor  # int64 [N]
    streak: Tensor  # int64 [N], replans in a row that were ready for the next phase
    told: dict[str, np.ndarray]  # of the last replan


class GuidedPolicy:
    """Satisfies ``protocols.Policy`` and ``protocols.Tells``."""

    kind = "guided"

    def __init__(self, policy: DenoisingAdapter, dynamics: LatentDynamics, targets: Targets, guide: Guide, name: str) -> None:
        self.policy, self.dynamics, self.targets, self.guide, self.name = policy, dynamics, targets, guide, name
        self._latents = Latents(policy)

    def check(self, spec: Mapping[str, Any]) -> None:
        """See Fitted."""
        self.policy.check(spec)

    def start(self, n: int) -> Guided:
        """See Policy."""
        zero = torch.zeros(n, dtype=torch.long, device=self.policy.device)
        return Guided(None, zero, zero, {})

    @torch.inference_mode(False)  # lerobot's own tools act under it, and autograd refuses its tensors
    @torch.no_grad()
    def act(self, obs: Obs, memory: Guided, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, Guided]:
        """See Policy: actions f32 [N, n_action_steps, A] in the data's units."""
        policy, n = self.policy, len(rngs)
        recent, noise = policy.remember(obs, memory.recent), policy.noise(rngs)
        plans, latents, gates = [], [], []
        for rows in policy.blocks(n):
            context = policy.family.context(policy.model, policy.batch(recent, rows))
            moment = self._moment(context, memory.phase[rows])
            gate: list[Tensor] = []

            def adjust(x_t: Tensor, step: Step, clean: Tensor, moment=moment, gate=gate) -> tuple[Tensor, Tensor]:
                x_t, clean, on = self.guide.adjust(moment, x_t, step, clean)
                gate.append(on)
                return x_t, clean

            plans.append(policy.family.sampled(policy.model, context, noise[rows], policy.steps, adjust))
            latents.append(moment.latent)
            gates.append(torch.stack(gate, 1))
        latent, gate = torch.cat(latents)[:n], torch.cat(gates)[:n]
        config = policy.model.config
        actions = policy.family.ahead(config, torch.cat(plans)[:n])[:, : config.n_action_steps]
        told = self._told(latent, memory.phase, gate)
        phase, streak = self.guide.advance(latent, self.targets, memory.phase, memory.streak)
        return policy.normalizers.by_key[ACTION].unnormalize(actions.float()).cpu().numpy(), Guided(recent, phase, streak, told)

    def told(self, memory: Guided) -> dict[str, np.ndarray]:
        """See Tells."""
        return memory.told

    def _moment(self, context: Any, phase: Tensor) -> Moment:
        latent, ahead = self._latents.of_context(context), self.policy.family.ahead

        def predict(plan: Tensor) -> Tensor:
            return self.dynamics(latent, ahead(self.policy.model.config, plan)[:, : self.dynamics.skip])

        return Moment(latent, phase, self.targets, predict)

    def _told(self, latent: Tensor, phase: Tensor, gate: Tensor) -> dict[str, np.ndarray]:
        guided = gate.any(1).cpu().numpy()
        return {
            "controller": np.where(guided, Controller.GUIDED, Controller.POLICY).astype(np.int8),
            "gate": gate.cpu().numpy(),
            "phase": phase.cpu().numpy().astype(np.int32),
            "distance": self.targets.soft_distance(latent, phase).cpu().numpy(),
        }


def load_guided(
    path: Path | str,
    *,
    dynamics: Path | str,
    phases: Path | str,
    guide: Guide,
    device: str = "auto",
    infer_width: int = 32,
    ddim_steps: int | None = None,
) -> GuidedPolicy:
    """Return the policy folder ``path``, guided by ``guide`` with ``dynamics`` and ``phases``: finished folders that were made for it."""
    policy = load_denoiser(path, device=device, infer_width=infer_width, ddim_steps=ddim_steps)
    targets = load_targets(phases, policy)
    net = load_dynamics(dynamics, policy)
    name = f"{policy.name}-guided-{fingerprint_of(guide, dynamics, phases)}"
    return GuidedPolicy(policy, net, targets, guide, name)


def fingerprint_of(guide: Guide, dynamics: Path | str, phases: Path | str) -> str:
    """Return what tells this guidance from any other: settings, dynamics, phases."""
    made = [read_artefact(Path(folder), kind)["fingerprint"] for folder, kind in ((dynamics, "dynamics"), (phases, "phases"))]
    return fingerprint_json([type(guide).__name__, vars(guide), made])[:12]
