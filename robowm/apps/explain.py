"""Turns what Hydra, OmegaConf and Python say about a wrong command line into one line that names the nearest valid key."""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from robowm.errors import UserError, nearest

EXPLAINED = (HydraException, OmegaConfBaseException, UserError)


def explain(error: BaseException, command: str, configs: Path) -> str:
    """Return one line for an error of composition."""
    for cause in _chain(error):
        if isinstance(cause, UserError):
            return str(cause)
        if isinstance(cause, OverrideParseException):
            return f"cannot read {cause.override!r} ({str(cause).splitlines()[0]}); quote values that hold spaces, commas or brackets"
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
            return _missing_choice(cause, configs)
        if isinstance(cause, OmegaConfBaseException) and cause.parent_node is not None and cause.key is not None:
            return _unknown_key(cause, command)
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines else type(error).__name__


def user_error(error: BaseException) -> UserError | None:
    """Return what the user can put right about ``error``, or None where it is a fault of ours."""
    for cause in _chain(error):
        if isinstance(cause, UserError):
            return cause
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return UserError(f"no space left on the disk ({cause.filename or 'while writing'}); free some and run again, it resumes")
        if "environment variable MUJOCO_GL" in str(cause):
            return UserError(f"MUJOCO_GL={os.environ.get('MUJOCO_GL')} is no rendering back-end; unset it, or use egl or osmesa")
        if type(cause).__name__ == "OutOfMemoryError" or isinstance(cause, MemoryError):
            return UserError(f"out of memory ({str(cause).splitlines()[0] if str(cause) else 'host'}); lower batch_size, env.n or size")
    if isinstance(error, OmegaConfBaseException):
        return UserError(str(error).splitlines()[0])
    if isinstance(error, InstantiationException) and not _is_fault(error):
        return UserError(_uninstantiated(error))
    return None


def keywords_of(run: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Return the keywords that ``run`` knows, and those of them that it needs; ``**fitting: Unpack[Fitting]`` counts as Fitting's keys."""
    known, needed = [], []
    for name, parameter in inspect.signature(run).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            known += [key for fields in get_args(get_type_hints(run).get(name)) for key in fields.__annotations__]
        else:
            known.append(name)
            if parameter.default is inspect.Parameter.empty:
                needed.append(name)
    return known, needed


def check_call(run: Callable[..., Any], arguments: Mapping[str, Any], command: str) -> None:
    """Refuse arguments that ``run`` does not have, and missing ones: its keywords are the schema."""
    known, needed = keywords_of(run)
    if unknown := sorted(set(arguments) - set(known)):
        raise UserError(f"unknown key {unknown[0]!r} for {command}; {nearest(unknown[0], known)}")
    if missing := sorted(set(needed) - set(arguments)):
        raise UserError(f"missing: {', '.join(missing)}; give e.g. {missing[0]}=... ({command} --help)")


def check_targets(value: Any, trusted: Sequence[str]) -> None:
    """Refuse every ``_target_`` below ``value`` whose package is not in ``trusted``."""
    for target in _targets(value):
        if str(target).split(".")[0] not in trusted:
            raise UserError(f"_target_ {target} is outside the trusted packages {list(trusted)}; add its package with trusted=[...]")


def _targets(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        if "_target_" in value:
            yield value["_target_"]
        for item in value.values():
            yield from _targets(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _targets(item)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _uninstantiated(error: InstantiationException) -> str:
    """Return Hydra's word on what could not be made and, if it hides one, the error below it."""
    bottom = " ".join(str(error.__cause__ or "").split())
    lines = [line.strip() for line in str(error).splitlines()[:2] if "HYDRA_FULL_ERROR" not in line]
    text = " ".join(lines) or str(error).splitlines()[0].partition(", set env var")[0]
    return text if not bottom or bottom in text else f"{text}: {bottom}"


def _is_fault(error: InstantiationException) -> bool:
    """Tell whether an object's own code failed, rather than its name or its arguments."""
    cause = error.__cause__
    if cause is None or isinstance(cause, ImportError | AttributeError):
        return False
    return not (isinstance(cause, TypeError) and "argument" in str(cause))


def _missing_choice(error: MissingConfigException, configs: Path) -> str:
    group, _, choice = str(error.missing_cfg_file).rpartition("/")
    for first in ("", *(f"{path.name}" for path in configs.iterdir() if path.is_dir())):
        if group == first or group.startswith(f"{first}/"):
            group, choice = first, str(error.missing_cfg_file).removeprefix(f"{first}/")
    return f"unknown choice {group}={choice}; {nearest(choice, choices(configs, group))}"


def choices(configs: Path, group: str) -> list[str]:
    """Return the options of a config group, those in sub-folders as ``folder/option``."""
    folder = configs / group
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def _unknown_key(error: OmegaConfBaseException, command: str) -> str:
    full = str(error.full_key or error.key)
    parent = error.parent_node
    try:
        known = [str(key) for key in parent.keys() if key != "hydra"]  # noqa: SIM118 (a config node)
    except (AttributeError, OmegaConfBaseException):
        return str(error).splitlines()[0]
    prefix = full.rpartition(".")[0]
    key = str(error.key)
    if key in known:  # the key exists, its value does not fit
        return f"{full}: {str(error).splitlines()[0]}"
    return f"unknown key {full!r} for {command}{f' in {prefix}' if prefix else ''}; {nearest(key, known)}"
