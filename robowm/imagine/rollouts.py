"""Imagined episodes: the policy acts in the world model from real starts, a classifier judges, successes are stored.

``output_dir`` becomes an EpisodeStore. Its episodes have source.kind imagined, controller policy, the world model's and the policy's
fingerprints, success 1 judged by the classifier's fingerprint, and the classifier's probability as reward. ``imagined.jsonl`` has one line
per episode tried, {seed, draw, score, steps, reason}, and is what an interrupted run goes on from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from robowm.artefacts import claim
from robowm.data.spec import StoreSpec
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.imagine.filter import KEPT, count, decide
from robowm.imagine.judged import JudgedEnv
from robowm.jsonl import append_lines, recover_lines
from robowm.progress import Progress
from robowm.protocols import Env, Policy, WorldModel
from robowm.reward.success import SuccessClassifier, held_probability
from robowm.rollout import Replay, Rollout, check_amount, check_fit, run_episodes
from robowm.types import Episode, Obs
from robowm.world_model.imagined import ImaginedEnv

LEDGER = "imagined.jsonl"


class Starts(Protocol):
    """Real first observations by seed (robowm/imagine/starts.py)."""

    seeds: Sequence[int]
    spec: StoreSpec
    task_name: str
    name: str

    def __call__(self, seeds: Sequence[int]) -> Obs: ...


def run(
    *,
    world_model: WorldModel,
    policy: Policy,
    classifier: SuccessClassifier,
    starts: Starts,
    output_dir: Path | str,
    max_steps: int,
    episodes: int | None = None,
    until_successes: int | None = None,
    n: int = 32,
    stop_after_success: int = 5,
    min_steps: int = 0,
    agreement: bool = False,
    keep_failures: bool = False,
    noise_salt: int = 0,
    round: int = 0,
) -> dict[str, Any]:
    """Imagine ``episodes`` episodes, or as many as give ``until_successes`` kept ones, and return the counts by fate.

    Starts are taken in order; when all have been used they are used again with other noise (``draw`` 1, 2, ...), for ``until_successes``
    at most four times. An episode ends ``stop_after_success`` steps after its first confirmed success. ``agreement`` replays each success
    under a second noise draw and drops it unless it succeeds there too. ``keep_failures`` stores the dropped ones as well, to judge on.
    """
    output_dir = Path(output_dir)
    check_amount(episodes=episodes, until_successes=until_successes)
    rules = {"max_steps": max_steps, "stop_after_success": stop_after_success, "min_steps": min_steps, "agreement": agreement}
    rules |= {"noise_salt": noise_salt, "round": round}
    asked = {"episodes": episodes, "until_successes": until_successes, "keep_failures": keep_failures}
    check_fit(policy, starts.spec.to_json())
    config = {"task": starts.task_name, "starts": starts.name, "seeds": [starts.seeds[0], starts.seeds[-1]], **asked, **rules}
    inputs = {"world_model": world_model.name, "policy": policy.name, "success_classifier": classifier.name}
    if (finished := claim(output_dir, kind="store", inputs=inputs, config=config)) is not None:
        return finished["counts"]

    def world(noise: int) -> JudgedEnv:
        return JudgedEnv(ImaginedEnv(world_model, starts, n, starts.spec.fps, starts.task_name, salt=noise), classifier)

    journal = _Journal(output_dir, starts.spec)
    imagination = Imagination(world=world, policy=policy, classifier=classifier, world_model=world_model.name, **rules)
    target, most = (episodes, episodes) if until_successes is None else (until_successes, _MOST_DRAWS * len(starts.seeds))
    reached = journal.tried if until_successes is None else journal.kept
    with Progress(output_dir, target, "imagine", done=reached()) as progress:
        while reached() < target and journal.tried() < most:
            before = reached()
            draw, first = divmod(journal.tried(), len(starts.seeds))
            batch = list(starts.seeds[first : first + min(n, most - journal.tried())])
            for episode, line in imagination.batch(batch, draw):
                journal.add(episode, line, keep=keep_failures or line["reason"] == KEPT)
                if reached() == target:
                    break
            journal.flush()
            progress.advance(reached() - before, kept=journal.kept() / journal.tried())
    counts = count(journal.reasons)
    if reached() < target:
        raise UserError(
            f"{counts[KEPT]} of {target} imagined successes after {journal.tried()} tries ({counts}); train longer or ask for fewer"
        )
    journal.store.seal(inputs=inputs, config=config, counts=counts)
    return counts


_MOST_DRAWS = 4


@dataclasses.dataclass(frozen=True)
class Imagination:
    """Runs a batch of imagined episodes and decides on each. ``world`` gives the judged world under the noise of a given number."""

    world: Callable[[int], Env]
    agreement: bool
    policy: Policy
    classifier: SuccessClassifier
    world_model: str
    max_steps: int
    stop_after_success: int
    min_steps: int
    noise_salt: int
    round: int

    def batch(self, seeds: Sequence[int], draw: int) -> list[tuple[Episode, dict[str, Any]]]:
        """Return each start's episode, judged and cut, and its line for the ledger."""
        rollouts = self._roll(self.world(2 * draw), self.policy, seeds, self.max_steps, draw)
        agrees = self._agreement(seeds, rollouts, draw) if self.agreement else [None] * len(rollouts)
        return [self._judge(rollout, agrees[i], draw) for i, rollout in enumerate(rollouts)]

    def _roll(self, env: Env, policy: Policy, seeds: Sequence[int], max_steps: int, draw: int) -> list[Rollout]:
        return list(
            run_episodes(
                env,
                policy,
                seeds,
                max_steps=max_steps,
                kind="imagined",
                stop_after_success=self.stop_after_success,
                noise_salt=self.noise_salt + draw,
                round=self.round,
                world_model=self.world_model,
            )
        )

    def _agreement(self, seeds: Sequence[int], rollouts: Sequence[Rollout], draw: int) -> list[bool | None]:
        """Replay the successes under other noise, all steps at a time so that the world model's chunks fall as before."""
        agrees: list[bool | None] = [None] * len(rollouts)
        successes = [i for i, rollout in enumerate(rollouts) if rollout.success_steps.any()]
        if not successes:
            return agrees
        longest = max(len(rollouts[i].episode) for i in successes)
        replay = Replay([rollouts[i].episode.action for i in successes], chunk=longest)
        again = self._roll(self.world(2 * draw + 1), replay, [seeds[i] for i in successes], longest, draw)
        for i, rollout in zip(successes, again, strict=True):
            agrees[i] = bool(rollout.success_steps[: len(rollouts[i].episode) + 1].any())
        return agrees

    def _judge(self, rollout: Rollout, agrees: bool | None, draw: int) -> tuple[Episode, dict[str, Any]]:
        confirmed = int(rollout.success_steps.argmax()) if rollout.success_steps.any() else None
        reason = decide(confirmed, self.min_steps, agrees)
        episode = dataclasses.replace(rollout.episode, success=float(reason == KEPT), judged_by=self.classifier.name)
        score = float(held_probability(episode.reward, self.classifier.consecutive).max(initial=0.0))
        line = {"seed": episode.source.seed, "draw": draw, "score": round(score, 5), "steps": len(episode), "reason": reason}
        return episode, line


class _Journal:
    """The store and the ledger, kept in step: after a kill the store may be ahead by episodes that are not appended again."""

    def __init__(self, folder: Path, spec: StoreSpec):
        self.store = EpisodeStore.open_or_create(folder, spec)
        self._ledger = folder / LEDGER
        lines = recover_lines(self._ledger)
        self.reasons = [line["reason"] for line in lines]
        self._stored = sum(line["stored"] for line in lines)
        self._pending: list[dict[str, Any]] = []

    def tried(self) -> int:
        return len(self.reasons)

    def kept(self) -> int:
        return self.reasons.count(KEPT)

    def add(self, episode: Episode, line: dict[str, Any], *, keep: bool) -> None:
        if keep:
            if self._stored == len(self.store):
                self.store.append(episode)
            self._stored += 1
        self.reasons.append(line["reason"])
        self._pending.append({**line, "stored": int(keep)})

    def flush(self) -> None:
        append_lines(self._ledger, self._pending)
        self._pending = []
