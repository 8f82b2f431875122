"""``robowm improve recipe=ft|fs|fs_ft``: a policy learns to recover from its own guided successes (ReGuide, arXiv 2606.28939, section 1.2).

    for i in 1 .. iterations:
        dynamics  of the policy's latents, on demonstrations, its rollouts and the guided episodes so far
        phases    of the demonstrations, as the policy sees them
        guided    successes of the policy, guided by both
        train     FS: a fresh policy on demonstrations and guided episodes;  FT: the policy goes on, on a mixture of them

Each of them is an artefact below ``output_dir/iteration<i>``, so that a run that was cut off goes on where it stopped; the last policy is
``output_dir`` itself. Only demonstrations shape the normaliser, and the dynamics model is made anew for every policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robowm.data.shares import StoreShare, as_shares
from robowm.errors import UserError
from robowm.evaluation import collect
from robowm.protocols import Env, Policy

Run = Callable[..., dict[str, Any]]


def run(
    *,
    init_from: Path | str,
    stores: Sequence[StoreShare | Mapping[str, Any]],
    rollouts: Sequence[StoreShare | Mapping[str, Any]],
    output_dir: Path | str,
    env: Env,
    dynamics: Run,
    phases: Run,
    policy: Callable[..., Policy],
    fresh: Run | None,
    further: Run | None,
    successes: int,
    max_steps: int,
    guided_share: float = 0.8,
    iterations: int = 1,
    first_seed: int | None = None,
    max_tries: int | None = None,
    stop_after_success: int | None = 10,
) -> dict[str, Any]:
    """Absorb ``successes`` guided successes an iteration into the policy folder ``init_from``; return the last training's last log line.

    Args:
        stores: demonstrations.
        rollouts: what the policy did unguided, failures too; the dynamics model learns from it.
        dynamics, phases: runs of train-dynamics and find-phases but for ``encoder``, ``stores`` and ``output_dir``.
        policy: makes the guided policy of a policy folder, given the folders ``dynamics`` and ``phases``.
        fresh: a training of a new policy but for ``stores`` and ``output_dir``; it draws steps of the union evenly. None: not part of it.
        further: the same for going on (``init_from``): of each batch ``guided_share`` is guided. None: not part of it.
        first_seed, max_tries: first start (null: that of rollouts; an iteration goes on where the last ended), starts it may try.
    """
    _check(iterations, guided_share, fresh, further)
    output_dir, current, guided = Path(output_dir), Path(init_from), []
    demos, unguided = as_shares(stores), as_shares(rollouts)
    for i in range(1, iterations + 1):
        folder = output_dir / f"iteration{i}"
        dynamics(encoder=current, stores=[*demos, *unguided, *guided], output_dir=folder / "dynamics")
        phases(encoder=current, stores=demos, output_dir=folder / "phases")
        counts = collect.run(
            env=env,
            policy=policy(path=current, dynamics=folder / "dynamics", phases=folder / "phases"),
            output_dir=folder / "guided",
            purpose="rollouts",
            until_successes=successes,
            keep_failures=False,
            max_steps=max_steps,
            first_seed=first_seed,
            max_tries=max_tries,
            stop_after_success=stop_after_success,
            round=i,
        )
        guided.append(StoreShare(folder / "guided"))
        first_seed = collect.start(first_seed, "rollouts") + counts["tried"]
        if fresh is not None:
            current = output_dir if i == iterations and further is None else folder / "fresh"
            line = fresh(stores=[replace(share, share=None) for share in [*demos, *guided]], output_dir=current)
        if further is not None:
            start, current = current, output_dir if i == iterations else folder / "further"
            line = further(init_from=start, stores=mixture(demos, guided, guided_share), output_dir=current)
    return line


def _check(iterations: int, guided_share: float, *trainings: Run | None) -> None:
    if not any(trainings) or iterations < 1 or not 0 < guided_share < 1:
        raise UserError(f"give fresh, further or both, iterations >= 1 and 0 < guided_share < 1; found {iterations=}, {guided_share=}")


def mixture(demos: Sequence[StoreShare], guided: Sequence[StoreShare], guided_share: float) -> list[StoreShare]:
    """Return ``demos`` and ``guided`` with shares so that ``guided_share`` of all is guided, evenly over the guided stores."""
    total = sum(share.share for share in demos)
    kept = [replace(share, share=(1 - guided_share) * share.share / total) for share in demos]
    return kept + [replace(share, share=guided_share / len(guided)) for share in guided]
