"""What would have happened: the actions of another episode, executed in the simulator from a recorded episode's start.

``output_dir`` becomes a store, so that a world model is evaluated on it as on any other: from the same real frame, under actions that this
start never saw, against what the simulator then shows. Recorded actions fit what is seen; these do not, so they give nothing away.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robowm.artefacts import claim
from robowm.data.store import EpisodeStore, StoreSpec
from robowm.errors import UserError
from robowm.progress import Progress
from robowm.protocols import Env
from robowm.rollout import Replay, run_episodes
from robowm.types import Episode

SAME = 1e-3  # most that a start may differ from the recorded one, in the state's own units


def record_counterfactuals(env: Env, source: EpisodeStore, numbers: np.ndarray, steps: int, output_dir: Path) -> EpisodeStore:
    """Run the first ``steps`` actions of the next of the episodes ``numbers`` from the start seed of each, and store what happened.

    Resumes after the last stored episode. Raises UserError where ``env`` does not start where the recorded episodes did.
    """
    spec = StoreSpec(**env.spec())
    if spec.action_names != source.spec.action_names or spec.action_kind != source.spec.action_kind:
        raise UserError(
            f"env takes {spec.action_kind} actions {spec.action_names}, {source.path} holds {source.spec.action_kind} "
            f"{source.spec.action_names}; give the env that it was recorded in"
        )
    inputs = {"source": source.fingerprint()}
    config = {"task": env.task_name, "spec": spec.to_json(), "episodes": [int(i) for i in numbers], "steps": steps}
    finished = claim(output_dir, kind="store", inputs=inputs, config=config) is not None
    store = EpisodeStore.open_or_create(output_dir, spec)
    if finished:
        return store
    with Progress(output_dir, len(numbers), "execute counterfactual actions", done=len(store)) as progress:
        for first in range(len(store), len(numbers), env.n):
            own = [source.episode(int(i), cameras=()) for i in numbers[first : first + env.n]]
            others = [source.episode(int(numbers[(first + k + 1) % len(numbers)]), cameras=()) for k in range(len(own))]
            replay = Replay([other.action[:steps] for other in others])
            for rollout, episode in zip(
                run_episodes(env, replay, [e.source.seed for e in own], max_steps=steps, kind="rollout"), own, strict=True
            ):
                _check_start(rollout.episode, episode, source)
                store.append(rollout.episode)
            progress.advance(len(own))
    store.seal(inputs=inputs, config=config)
    return store


def _check_start(run: Episode, recorded: Episode, source: EpisodeStore) -> None:
    for name in ("state", "environment_state"):
        here, there = getattr(run, name), getattr(recorded, name)
        if here is None or there is None:
            continue
        if here.shape[1] != there.shape[1] or np.abs(here[0] - there[0]).max() > SAME:
            raise UserError(
                f"{source.path}: from start seed {recorded.source.seed} env begins with {name} {np.round(here[0], 3).tolist()}, recorded "
                f"was {np.round(there[0], 3).tolist()}; give the env that the store was recorded in, with its settings"
            )
