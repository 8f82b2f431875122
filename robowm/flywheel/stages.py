"""Stages as data: which verb with which overrides, and what it needs. Pure: nothing here runs anything.

In an override ``{name}`` stands for the folder of the stage ``name`` of the same unit, ``{task}`` and ``{train_seed}`` for the unit, a name
from ``offsets`` for ``first + per_train_seed * train_seed``, and one from ``per_task`` for what it holds for the unit's task. A stage needs
those whose folders it names, and those under ``needs``. An override ``~key`` takes ``key`` out again, for experiments that change a list of
stages. A stage with ``train_seeds`` exists in the units of those seeds alone, with none of them nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from robowm.errors import UserError, nearest

PLACEHOLDER = re.compile(r"\{([\w-]+)\}")
PLAIN = re.compile(r"^[A-Za-z_./-][\w./@+-]*$")  # strings that Hydra reads as they stand
WORDS_WITH_MEANING = {"true", "false", "null", "nan", "inf"}  # ... but for these
KEYS = {"verb", "overrides", "needs", "minutes", "train_seeds"}


@dataclass(frozen=True)
class Stage:
    """One run of one verb, into the folder ``name`` below the flywheel's ``output_dir``."""

    name: str  # "<unit>/<stage>"
    verb: str
    overrides: Mapping[str, Any]  # values may still hold "{<unit>/<stage>}"
    needs: tuple[str, ...]  # names of stages
    minutes: float = 1.0  # rough cost: decides the order and the first guess of the time left
    common: Mapping[str, Any] = field(default_factory=dict)  # overrides given to every stage

    def words(self, folders: Mapping[str, str] | None = None) -> list[str]:
        """Return the command line's overrides, with the folders put in where they are known."""
        values = {**self.common, **self.overrides}
        return [f"{key}={to_override(_replace(value, folders or {}))}" for key, value in values.items()]


def expand(
    stages: Mapping[str, Mapping[str, Any]],
    *,
    tasks: Sequence[str],
    train_seeds: Sequence[int],
    offsets: Mapping[str, Mapping[str, int]],
    per_task: Mapping[str, Mapping[str, Any]],
    common: Mapping[str, Any],
) -> list[Stage]:
    """Return the stages of every unit (task, train seed), checked: known keys and needs, no cycle."""
    found: list[Stage] = []
    for task in tasks:
        for train_seed in train_seeds:
            numbers = {name: spec["first"] + spec["per_train_seed"] * train_seed for name, spec in offsets.items()}
            facts = {
                "task": task,
                "train_seed": train_seed,
                **numbers,
                **{name: _of_task(name, values, task) for name, values in per_task.items()},
            }
            own = of_train_seed(stages, train_seed)
            found += [_stage(name, node, own, facts, common) for name, node in own.items()]
    order(found)
    return found


def of_train_seed(stages: Mapping[str, Mapping[str, Any]], train_seed: int) -> dict[str, Mapping[str, Any]]:
    """Return the stages that a unit of ``train_seed`` has."""
    return {name: node for name, node in stages.items() if train_seed in node.get("train_seeds", [train_seed])}


def _of_task(name: str, values: Mapping[str, Any], task: str) -> Any:
    if task not in values:
        raise UserError(f"per_task.{name} says nothing of task {task!r}; it has {', '.join(values)}; add it")
    return values[task]


def unit_name(task: str, train_seed: int) -> str:
    """Return the folder of a unit below the flywheel's ``output_dir``."""
    return f"{task}-{train_seed}"


def train_seed_of(unit: str) -> int:
    """Return the training seed in a unit's name."""
    return int(unit.rsplit("-", 1)[1])


def _stage(name: str, node: Mapping[str, Any], stages: Mapping[str, Any], facts: Mapping[str, Any], common: Mapping[str, Any]) -> Stage:
    if unknown := sorted(set(node) - KEYS):
        raise UserError(f"stage {name}: unknown key {unknown[0]!r}; {nearest(unknown[0], KEYS)}")
    if "verb" not in node:
        raise UserError(f"stage {name} names no verb")
    unit = unit_name(facts["task"], facts["train_seed"])
    given = node.get("overrides") or {}
    given = {key: value for key, value in given.items() if not key.startswith("~") and f"~{key}" not in given}
    known = {**facts, **{other: f"{{{unit}/{other}}}" for other in stages}}
    try:
        overrides = _fill(given, known)
        needs = [*(node.get("needs") or []), *(word for word in placeholders(given) if word in stages)]
        for need in needs:
            if need not in stages:
                raise UserError(f"needs {need!r}, which is no stage; {nearest(need, stages)}")
    except UserError as error:
        raise UserError(f"stage {name}: {error}") from error
    return Stage(
        name=f"{unit}/{name}",
        verb=node["verb"],
        overrides=overrides,
        needs=tuple(f"{unit}/{need}" for need in dict.fromkeys(needs)),
        minutes=float(node.get("minutes", 1.0)),
        common=_fill(common, facts),
    )


def placeholders(value: Any) -> list[str]:
    """Return the names in braces anywhere below ``value``."""
    if isinstance(value, Mapping):
        return [name for item in value.values() for name in placeholders(item)]
    if isinstance(value, list | tuple):
        return [name for item in value for name in placeholders(item)]
    return PLACEHOLDER.findall(value) if isinstance(value, str) else []


def _fill(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill(item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(item, known) for item in value]
    if not isinstance(value, str):
        return value
    for name in PLACEHOLDER.findall(value):
        if name not in known:
            raise UserError(f"{{{name}}} is no stage, unit fact or offset; {nearest(name, known)}")
    whole = PLACEHOLDER.fullmatch(value)
    return known[whole[1]] if whole else PLACEHOLDER.sub(lambda match: str(known[match[1]]), value)


def _replace(value: Any, folders: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _replace(item, folders) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(item, folders) for item in value]
    if isinstance(value, str):
        return re.sub(r"\{([^{}]+)\}", lambda match: folders.get(match[1], match[0]), value)
    return value


def to_override(value: Any) -> str:
    """Write a value in Hydra's override grammar."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{to_override(str(key))}:{to_override(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(to_override, value)) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    if PLAIN.match(text) and text.lower() not in WORDS_WITH_MEANING:
        return text
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + match[2].replace("'", "\\'"), text)
    return f"'{escaped}'"


def order(stages: Sequence[Stage]) -> dict[str, float]:
    """Return {name: minutes of the longest path from its start to the end}: the stage with most behind it goes first.

    Raises UserError on a cycle.
    """
    after: dict[str, list[Stage]] = {stage.name: [] for stage in stages}
    for stage in stages:
        for need in stage.needs:
            after[need].append(stage)
    lengths: dict[str, float] = {}

    def length(stage: Stage, path: tuple[str, ...]) -> float:
        if stage.name in path:
            raise UserError(f"stages need each other in a circle: {' -> '.join([*path[path.index(stage.name) :], stage.name])}")
        if stage.name not in lengths:
            behind = [length(other, (*path, stage.name)) for other in after[stage.name]]
            lengths[stage.name] = stage.minutes + max(behind, default=0.0)
        return lengths[stage.name]

    for stage in stages:
        length(stage, ())
    return lengths


def makespan(stages: Sequence[Stage], seconds: Mapping[str, float], running: Sequence[str], workers: int) -> float:
    """Return the seconds until all ``stages`` are done, given each one's ``seconds`` left and who is ``running`` now."""
    priority = order_of_left(stages)
    left = {stage.name: stage for stage in stages}
    active = {name: seconds[name] for name in running if name in left}
    now = 0.0
    while left:
        ready = [name for name, stage in left.items() if name not in active and not any(need in left for need in stage.needs)]
        for name in sorted(ready, key=lambda name: -priority[name])[: max(workers - len(active), 0)]:
            active[name] = now + seconds[name]
        first = min(active, key=active.__getitem__)
        now = max(now, active.pop(first))
        del left[first]
    return now


def order_of_left(stages: Sequence[Stage]) -> dict[str, float]:
    """Return ``order`` of some of the stages, as if the needs that are not among them were done."""
    names = {stage.name for stage in stages}
    return order([Stage(s.name, s.verb, s.overrides, tuple(need for need in s.needs if need in names), s.minutes) for s in stages])
