"""``python -m real_robot.replay``: send the recorded actions of an episode again, through the guard, and compare where the robot went."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from real_robot.commands import App, main_of
from real_robot.devices import pose_of
from real_robot.labels import Event, Mode
from real_robot.operator import Operator
from real_robot.pilots import Blend, PathPilot
from real_robot.rates import Pace, achieved_hz
from real_robot.session import FETCH_SHARE, Session, Stopped
from real_robot.setup import Body, Safety, body, plan_body, rules, watcher
from robowm.artefacts import write_json
from robowm.data.spec import ACTION, STATE
from robowm.data.store import EpisodeStore
from robowm.errors import UserError

APP = App("replay", "real_robot.replay:run", about="send the recorded actions of an episode again and compare where the robot went")
REPORT = "replay.json"


def run(
    *,
    robot: Mapping[str, Any],
    operator: Operator,
    safety: Safety,
    store: str | Path,
    episode: int,
    output_dir: Path | str,
    image_size: Sequence[int] | None = None,
    view: bool = False,
) -> dict[str, Any]:
    """Drive to where ``episode`` of ``store`` began, send its actions at its rate, and return how far the robot was from its states.

    The result, also in ``output_dir/replay.json``, has ``error`` {state name: mean absolute difference}, ``achieved_hz`` and ``guard``
    {what was limited or held: ticks}. UserError for a store of another robot, and for an emergency stop.
    """
    opened = EpisodeStore.open(store)
    if not (isinstance(episode, int) and 0 <= episode < len(opened)):
        numbers = f", numbered 0 to {len(opened) - 1}" if len(opened) else ""
        raise UserError(f"episode={episode}; {store} holds {len(opened)} episodes{numbers}")
    device, spec = plan_body(robot, fps=opened.spec.fps, image_size=image_size, gripper=opened.spec.gripper)
    for key in ("state_names", "action_names"):
        if getattr(opened.spec, key) != getattr(spec, key):
            raise UserError(
                f"{store} was recorded with {key} {getattr(opened.spec, key)}, this robot has {getattr(spec, key)}; use its own"
            )
    states, actions = opened.rows(episode, STATE), opened.rows(episode, ACTION)
    how = rules(max_steps=len(actions), rewind_s=1.0, familiar_to=None, safety=safety, spec=spec)
    people = {"teleop": None, "policy": None, "chunking": Blend(), "operator": operator, "safety": safety, "task": ""}
    with body(device, spec, **people) as made:
        session = Session(made.arm, made.crew, how)
        if not session.prepare(opened.meta(episode).source.seed, None):
            raise KeyboardInterrupt
        made.arm.fresh(made.arm.clock.now())
        session.drive(pose_of(states[0], spec))
        result = _play(made, states, actions, watcher(view, spec))
    write_json(Path(output_dir) / REPORT, {"store": str(store), "episode": episode, **result})
    return result


def _play(made: Body, states: np.ndarray, actions: np.ndarray, watch) -> dict[str, Any]:
    arm, path, guard, rows = made.arm, PathPilot(np.asarray(actions, float)), Counter(), []
    pace = Pace(arm.clock, arm.period)
    held_since = None
    while path.left:
        pace.wait(arm.estop.event)
        said = made.crew.operator.poll(Mode.DEMO, len(rows))
        if arm.estop.is_set:
            raise Stopped(arm.estop.reason)
        if Event.QUIT in said:
            break
        seen = arm.fetch(arm.period * FETCH_SHARE)
        sent = arm.send(path.target(), seen)
        guard.update(map(str, sent.command.why))
        if watch is not None:
            watch(seen, sent)
        if not sent.command.held:
            rows.append(seen.state)
            path.done()
            held_since = None
        else:
            held_since = arm.clock.now() if held_since is None else held_since
            if arm.clock.now() - held_since > made.hold_limit_s:
                raise UserError(f"the robot is held ({', '.join(sorted(sent.command.why))}); check its cameras, then replay again")
    rows.append(arm.fresh().state)
    error = np.abs(np.stack(rows) - states[: len(rows)]).mean(0)
    hz = achieved_hz(pace.ticks)
    names = arm.spec.state_names
    return {
        "steps": len(rows) - 1,
        "achieved_hz": None if hz is None else round(hz, 4),
        "error": {name: round(float(e), 6) for name, e in zip(names, error, strict=True)},
        "guard": dict(guard),
    }


if __name__ == "__main__":
    sys.exit(main_of(APP))
