"""One rollout loop for the simulator, the robot and the world model.

Per-episode randomness: episode with start seed s and noise salt q draws from ``default_rng([q, s])``, so neither the batch it runs in nor
its place in that batch changes its outcome (given a policy that infers at a fixed, padded width, see policy/lerobot.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from robowm.errors import UserError
from robowm.protocols import Described, Env, Fitted, Policy, Tells
from robowm.types import Controller, Episode, Obs, Source, SourceKind, Steps


@dataclass(frozen=True)
class Rollout:
    """One finished episode with what only the environment knows about it."""

    episode: Episode
    success_steps: np.ndarray  # bool [T+1], the goal holds at observation row t; row 0 is the reset state
    told: dict[str, np.ndarray] = field(default_factory=dict)  # {name: [T, ...]}, what a ``Tells`` policy said of each step's chunk


class Replay:
    """A Policy that plays recorded actions, whatever it sees: ``actions[i]`` in episode i of the batch, then its last action on and on."""

    name = "robowm.rollout.Replay"

    def __init__(self, actions: Sequence[np.ndarray], chunk: int = 1):
        """``actions``: f32 [T, A] of each episode of the batch, T may differ; ``chunk`` steps are given per call."""
        self._actions, self._chunk = list(actions), chunk

    def start(self, n: int) -> int:
        """See Policy; memory is the step reached."""
        if n != len(self._actions):
            raise ValueError(f"{n} episodes, but recorded actions of {len(self._actions)}")
        return 0

    def act(self, obs: Obs, memory: int, rngs: Sequence[np.random.Generator]) -> tuple[np.ndarray, int]:
        """See Policy."""
        rows = np.arange(memory, memory + self._chunk)
        return np.stack([actions[np.minimum(rows, len(actions) - 1)] for actions in self._actions]), memory + self._chunk


def described(env: Env, policy: Policy | None = None) -> dict[str, Any]:
    """Return what the episodes of ``env`` depend on beside seeds, {} where it does not say; UserError where ``policy`` is for others."""
    if not isinstance(env, Described):
        return {}
    check_fit(policy, env.spec())
    return dict(env.settings)


def check_fit(policy: Policy | None, spec: Mapping[str, Any]) -> None:
    """Raise UserError where ``policy`` says that it was made for other environments than one of ``spec``."""
    if isinstance(policy, Fitted):
        policy.check(spec)


def check_amount(**wanted: int | None) -> tuple[int, str]:
    """Return (target, name) of the one amount that is given; UserError unless exactly one is, and at least 1."""
    given = [(amount, name) for name, amount in wanted.items() if amount is not None]
    if len(given) != 1 or given[0][0] < 1:
        found = ", ".join(f"{name}={amount}" for name, amount in wanted.items())
        raise UserError(f"give exactly one of {', '.join(wanted)}, at least 1; found {found}")
    return given[0]


def run_episodes(
    env: Env,
    policy: Policy,
    seeds: Sequence[int],
    *,
    max_steps: int,
    kind: SourceKind,
    controller: Controller = Controller.POLICY,
    stop_after_success: int | None = None,
    noise_salt: int = 0,
    round: int = 0,
    world_model: str | None = None,
) -> Iterator[Rollout]:
    """Run each seed once, ``env.n`` side by side, and yield the finished episodes in the order of ``seeds``.

    ``stop_after_success`` ends an episode that many steps after its first success (None: at ``max_steps``). A policy's chunk is cut at
    ``max_steps``. A policy that ``Tells`` names the controller of each chunk itself, and may end episodes. Success is ``nan`` (not judged)
    for imagined episodes, whose environment cannot know. Where the environment did not draw every row (``render_rows``), the episodes come
    without frames.
    """
    for first in range(0, len(seeds), env.n):
        batch = list(seeds[first : first + env.n])
        obs, at_reset, chunks, told, lengths, terminated = _run_batch(env, policy, batch, max_steps, stop_after_success, noise_salt)
        for i, seed in enumerate(batch):
            source = Source(kind=kind, seed=int(seed), policy=policy.name, world_model=world_model, round=round)
            rollout = _cut(obs, bool(at_reset[i]), chunks, i, int(lengths[i]), bool(terminated[i]), source, controller, env.fps)
            yield _with_told(rollout, told, [actions.shape[1] for actions, _ in chunks], i) if told else rollout


def _run_batch(env, policy, seeds, max_steps, stop_after_success, noise_salt):
    n = len(seeds)
    rngs = [np.random.default_rng([noise_salt, int(seed)]) for seed in seeds]
    first = recent = env.reset(seeds)
    at_reset = env.goal_holds()
    memory = policy.start(n)
    lengths = np.zeros(n, int)  # [N] steps kept
    terminated = np.zeros(n, bool)
    limit = np.full(n, max_steps)  # [N] step at which the episode ends
    chunks: list[tuple[np.ndarray, Steps]] = []
    told = []
    while (active := (lengths < limit) & ~terminated).any():
        actions, memory = policy.act(recent, memory, rngs)
        if isinstance(policy, Tells):
            said = dict(policy.told(memory))
            limit = np.where(said.pop("over", False), np.minimum(limit, lengths), limit)
            if not (active := active & (lengths < limit)).any():
                break
            told.append(said)
        actions = np.asarray(actions, np.float32)[:, : max_steps - int(lengths[active].min())]
        steps = env.step(actions, active)
        chunks.append((actions, steps))
        recent = steps.obs
        if stop_after_success is not None:
            hit = steps.success & steps.valid
            at = lengths + hit.argmax(1) + 1 + stop_after_success
            limit = np.where(hit.any(1) & active, np.minimum(limit, at), limit)
        lengths = lengths + np.where(active, steps.valid.sum(1), 0)
        terminated |= active & (steps.terminated & steps.valid).any(1)
    return first, at_reset, chunks, told, np.minimum(lengths, limit), terminated & (lengths <= limit)


def _cut(
    first: Obs, at_reset: bool, chunks, i: int, length: int, terminated: bool, source: Source, controller: Controller, fps: float
) -> Rollout:
    """Join environment i's rows of all chunks and keep its first ``length`` steps."""

    def observed(pick):
        return np.concatenate([pick(first)[i], *(pick(steps.obs)[i] for _, steps in chunks)])[: length + 1]

    def per_step(pick):
        return np.concatenate([pick(actions, steps)[i] for actions, steps in chunks])[:length]

    drawn = all(frames.shape[1] == steps.obs.state.shape[1] for _, steps in chunks for frames in steps.obs.frames.values())
    success = np.concatenate([[at_reset], per_step(lambda _, steps: steps.success)])
    judged = source.kind != "imagined"
    episode = Episode(
        frames={camera: observed(lambda o, c=camera: o.frames[c]) for camera in first.frames if drawn},
        state=observed(lambda o: o.state),
        environment_state=None if first.environment_state is None else observed(lambda o: o.environment_state),
        action=per_step(lambda actions, _: actions),
        reward=per_step(lambda _, steps: steps.reward),
        controller=np.full(length, controller, np.int8),
        segment=np.zeros(length, np.int32),
        task=first.task[i],
        fps=fps,
        source=source,
        success=float(success.any()) if judged else float("nan"),
        judged_by="simulator" if judged else "",
        terminated=terminated,
    )
    return Rollout(episode, success)


def _with_told(rollout: Rollout, told: Sequence[Mapping[str, np.ndarray]], lengths: Sequence[int], i: int) -> Rollout:
    """Return ``rollout`` with what was told of environment i's chunks, of ``lengths`` steps each, spread over their steps."""
    episode = rollout.episode
    spread = {name: np.repeat(np.stack([part[name][i] for part in told]), lengths, axis=0)[: len(episode)] for name in told[0]}
    controller = spread.pop("controller").astype(np.int8)
    segment = np.cumsum(np.diff(controller, prepend=controller[:1]) != 0).astype(np.int32)
    return replace(rollout, episode=replace(episode, controller=controller, segment=segment), told=spread)
