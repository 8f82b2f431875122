"""One small file per task; each defines ``TASK``, and its file name is the task's name."""

from __future__ import annotations

import importlib
import pkgutil

from robowm.errors import UserError, nearest
from sim.tabletop.task import Task


def task_names() -> list[str]:
    """Return the names of the tasks in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load_task(name: str) -> Task:
    """Return the task in this folder called ``name``, or the ``TASK`` of a module given by its dotted import path."""
    if "." not in name and name not in task_names():
        raise UserError(f"no tabletop task {name!r}: {nearest(name, task_names())}")
    path = name if "." in name else f"{__name__}.{name}"
    try:
        return importlib.import_module(path).TASK
    except (ModuleNotFoundError, AttributeError) as error:
        raise UserError(f"task {name!r}: {error}; expected a module that defines TASK") from error
