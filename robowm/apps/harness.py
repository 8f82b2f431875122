"""What every app shares: Hydra around one ``run()``, with claimed folders, checked keys, one-line errors and sweeps that finish.

``launch`` hands the command line to Hydra; ``job`` is what Hydra calls, once for a plain run and once for each job of a sweep.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationToMissingValueError

import robowm
from robowm.apps.cli import VERBS, module_of
from robowm.apps.explain import EXPLAINED, check_call, check_targets, explain, user_error
from robowm.apps.help import compose_config, help_text
from robowm.apps.numbers import check_numbers
from robowm.apps.sweeps import Outcome, Sweep, asks_for_sweep
from robowm.artefacts import ARTEFACT, write_json
from robowm.errors import UserError, nearest
from robowm.locks import exclusive

VERSION_BASE = "1.3"
RESERVED = ("size", "scene", "trusted", "run", "helpers")  # top-level keys that configure the configuration and are not arguments of run()
FULL_ERROR = "HYDRA_FULL_ERROR"
CLAIM_WAIT_S = 3.0  # how long a folder may stay locked by a process that is just ending


@dataclass(frozen=True)
class App:
    """A verb, the ``module:function`` it runs, and what is particular about its keys."""

    verb: str
    run: str
    nodes: tuple[str, ...] = ()  # parameters that take a config node as it stands: a model to be built below
    helpers: tuple[str, ...] = ()  # keys that only other keys refer to
    claims: bool = True  # False: run() locks what it writes itself
    program: str = "robowm"  # what the verb is a word of; another one's configs lie in a folder called so, with points as underscores
    about: str = ""  # one line of help; of robowm's own verbs it stands in cli.py

    @property
    def command(self) -> str:
        """Return what a user types."""
        return f"robowm {self.verb}" if self.program == "robowm" else f"python -m {self.program}.{self.verb}"

    @property
    def config_name(self) -> str:
        """Return the name of the verb's file in configs/."""
        name = module_of(self.verb)
        return name if self.program == "robowm" else f"{self.program.replace('.', '_')}/{name}"


def config_folder() -> Path:
    """Return the folder of configs: beside the package in a checkout, inside it in a wheel."""
    package = Path(robowm.__file__).resolve().parent
    for folder in (package.parent / "configs", package / "configs"):
        if (folder / "app.yaml").is_file():
            return folder
    raise UserError(f"no configs folder beside or inside {package}; install robowm again")


def launch(app: App, argv: Sequence[str]) -> int:
    """Run ``app`` with Hydra's command line ``argv`` and return the exit code."""
    configs = config_folder()
    if any(word in ("-h", "--help") for word in argv):
        return _help(app, configs, [word for word in argv if not word.startswith("-")])
    sweep = Sweep(argv) if asks_for_sweep(argv) else None
    outcomes: list[Outcome] = []
    full_error = os.environ.get(FULL_ERROR)

    def task(cfg: DictConfig) -> Any:
        with _environment(FULL_ERROR, full_error):
            outcome, result = job(cfg, app, sweep)
        outcomes.append(outcome)
        return result

    earlier, sys.argv = sys.argv, [app.command, *_flags_first(argv), *(sweep.hydra_overrides() if sweep else [])]
    try:
        with _environment(FULL_ERROR, "1"):  # Hydra then raises instead of printing and leaving with 1
            hydra.main(config_path=str(configs), config_name=app.config_name, version_base=VERSION_BASE)(task)()
    except KeyboardInterrupt:
        print(f"{app.command}: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    except EXPLAINED as error:
        if full_error == "1":
            traceback.print_exc()
        print(f"{app.command}: {explain(error, app.command, configs)}", file=sys.stderr)
        return 2
    except Exception as error:  # a launcher lost a job: the table says which
        if sweep is None:
            raise
        sweep.lost = f"{type(error).__name__}: {error}"
    finally:
        sys.argv = earlier
    if sweep is not None:
        return sweep.report()
    return outcomes[-1].code if outcomes else 0


def _help(app: App, configs: Path, overrides: list[str]) -> int:
    try:
        print(help_text(app.command, app.about or VERBS.get(app.verb, ""), app.config_name, configs, overrides), end="")
    except EXPLAINED as error:
        print(f"{app.command}: {explain(error, app.command, configs)}", file=sys.stderr)
        return 2
    return 0


def _flags_first(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` with its flags before its overrides, the only order that Hydra's parser takes."""
    overrides = [word for word in argv if not word.startswith("-") and ("=" in word or word.startswith("~"))]
    return [word for word in argv if word not in overrides] + overrides


def job(cfg: DictConfig, app: App, sweep: Sweep | None = None) -> tuple[Outcome, Any]:
    """Run one composed config; every failure becomes an ``Outcome``, so that a sweep goes on."""
    settings = HydraConfig.get()
    os.chdir(settings.runtime.cwd)  # relative paths mean the launch directory, also on a cluster node
    output_dir = sweep.output_dir(cfg, settings) if sweep else Path(cfg.output_dir)
    began = time.monotonic()
    code, line, result = _attempt(cfg, app, output_dir, list(settings.overrides.task))
    if code:
        print(f"{app.command}: {line}", file=sys.stderr)
    outcome = Outcome(code, line, round(time.monotonic() - began, 1), str(output_dir), list(settings.overrides.task))
    if not code:
        print(*_measured(result), f"{app.command}: done in {outcome.seconds:.0f} s, see {output_dir}", sep="\n", flush=True)
    if settings.mode == RunMode.MULTIRUN:
        number = settings.job.num
        write_json(Path(settings.sweep.dir) / "status" / f"{number}.json", vars(outcome))
    return outcome, result


def _measured(result: Any) -> list[str]:
    """Return a line for each measured row of a result, over whole rollouts where there is a horizon; without rows one of its numbers."""
    rows = result.get("rows", []) if isinstance(result, Mapping) else []
    if isinstance(result, Mapping) and not rows:
        numbers = [
            f"{name} {value:.4g}" for name, value in result.items() if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        return [", ".join(numbers)] if numbers else []
    rows = [row for row in rows if "@" not in row["metric"] or row["metric"].endswith("@mean")]
    return [
        f"{row['task']}  {row['arm']}  {row['metric']}  {row['value']:.4g} [{row['low']:.4g}, {row['high']:.4g}]  n={row['n']}"
        for row in rows
    ]


def _attempt(cfg: DictConfig, app: App, output_dir: Path, overrides: list[str]) -> tuple[int, str, Any]:
    """Return (exit code, one line, result)."""
    try:
        return 0, "", _run(cfg, app, output_dir, overrides)
    except Exception as error:  # noqa: BLE001 (the boundary: every error is reported here)
        found = user_error(error)
        if found is None or os.environ.get(FULL_ERROR) == "1":
            traceback.print_exc()
        if found is not None:
            return 2, str(found), None
        return 1, f"failed with {type(error).__name__}: {error} (see the traceback above)", None


def _run(cfg: DictConfig, app: App, output_dir: Path, overrides: list[str]) -> Any:
    if missing := sorted(_missing(OmegaConf.to_container(cfg, resolve=False))):
        raise UserError(f"missing: {', '.join(missing)}; give e.g. {missing[0]}=... ({app.command} --help)")
    container = OmegaConf.to_container(cfg, resolve=True)
    trusted = container.get("trusted", [])
    helpers = container.get("helpers", app.helpers)  # a choice that names another run may need others
    arguments = {key: _home(value) for key, value in container.items() if key not in (*RESERVED, *helpers)}
    check_targets(arguments, trusted)
    check_numbers(arguments)
    _check_stores(arguments)
    run = find(container.get("run", app.run), trusted)
    arguments["output_dir"] = output_dir
    check_call(run, arguments, app.command)
    with ExitStack() as stack:
        if app.claims:
            stack.enter_context(exclusive(output_dir, wait_s=CLAIM_WAIT_S))
            _record(output_dir, app.verb, overrides, container)
        for key, value in arguments.items():
            if key not in app.nodes and isinstance(value, dict | list):
                arguments[key] = instantiate(value, _convert_="all")
                if callable(close := getattr(arguments[key], "close", None)):
                    stack.callback(close)
        return run(**arguments)


def _missing(node: Any, prefix: str = "") -> list[str]:
    """Return the dotted keys below ``node`` that are still to be given."""
    if node == "???":
        return [prefix]
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    return [name for key, value in items for name in _missing(value, f"{prefix}.{key}" if prefix else str(key))]


def _check_stores(arguments: Mapping[str, Any]) -> None:
    """Raise UserError for a store that is not there, before anything heavy is imported."""
    for key in ("store", "stores", "validation_stores", "train_stores", "rollouts"):
        given = arguments.get(key)
        items = given if isinstance(given, list) else list(given.values()) if isinstance(given, Mapping) else [given]
        for item in items:
            path = item.get("path") if isinstance(item, Mapping) else item
            if isinstance(path, str) and not Path(path).exists():
                raise UserError(
                    f"{key}: {path} does not exist; expected the folder of a store (robowm collect, rollout, imagine or import)"
                )


def compose_verb(verb: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the whole config of ``robowm verb words...`` without running it; a wrong key is a UserError.

    Where something refers to a key that is still to be given, references stay as they are written.
    """
    if verb not in VERBS:
        raise UserError(f"unknown verb {verb!r}; {nearest(verb, VERBS)}")
    try:
        cfg = compose_config(module_of(verb), config_folder(), list(words))
        with open_dict(cfg):
            del cfg["hydra"]
        try:
            return OmegaConf.to_container(cfg, resolve=True)
        except InterpolationToMissingValueError:
            return OmegaConf.to_container(cfg, resolve=False)
    except EXPLAINED as error:
        raise UserError(f"{verb}: {explain(error, f'robowm {verb}', config_folder())}") from error


def size_overrides(size: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides that give another verb the same size: its name, and what was changed in it."""
    stored = OmegaConf.to_container(OmegaConf.load(config_folder() / "size" / f"{size['name']}.yaml"))
    parts = {part: values for part, values in size.items() if isinstance(values, Mapping)}
    changed = {f"size.{part}.{key}": v for part, values in parts.items() for key, v in values.items() if stored[part].get(key) != v}
    return {"size": size["name"], **changed}


def find(path: str, trusted: Sequence[str]) -> Any:
    """Return the object at ``module:name`` of a trusted package."""
    check_targets({"_target_": path}, trusted)
    module, name = path.split(":")
    return getattr(import_module(module), name)


def _record(output_dir: Path, verb: str, overrides: list[str], config: Mapping[str, Any]) -> None:
    """Keep the command and its resolved config beside unfinished work; a sealed artefact stays as it is."""
    if not (output_dir / ARTEFACT).is_file():
        write_json(output_dir / "command.json", {"verb": verb, "overrides": overrides, "config": config})


def _home(value: Any) -> Any:
    """Expand a leading ``~/`` in every string of a nested value."""
    if isinstance(value, dict):
        return {key: _home(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_home(item) for item in value]
    return str(Path(value).expanduser()) if isinstance(value, str) and value.startswith("~/") else value


class _environment:
    """Set or unset one environment variable inside a ``with``."""

    def __init__(self, name: str, value: str | None) -> None:
        self._name, self._value = name, value

    def __enter__(self) -> None:
        self._earlier = os.environ.get(self._name)
        self._put(self._value)

    def __exit__(self, *_) -> None:
        self._put(self._earlier)

    def _put(self, value: str | None) -> None:
        if value is None:
            os.environ.pop(self._name, None)
        else:
            os.environ[self._name] = value
