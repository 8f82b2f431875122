"""Builds a network from a config node and the data's layout; the node is stored with the checkpoint, and only trusted code is built."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import nn

from robowm.errors import UserError
from robowm.world_model.clips import Layout

TRUSTED = ("robowm.", "sim.", "real_robot.")  # prefixes of import paths that a checkpoint may name


def build(node: Mapping[str, Any], layout: Layout) -> nn.Module:
    """Return the network that ``node`` (``_target_`` and its settings) describes, for data of ``layout``."""
    settings = dict(node)
    target = str(settings.pop("_target_", ""))
    if not target.startswith(TRUSTED):
        raise UserError(f"world_model._target_ is {target!r}; it must start with one of {', '.join(TRUSTED)}")
    module, _, name = target.rpartition(".")
    try:
        make = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"world_model._target_ {target!r} cannot be imported: {error}") from error
    try:
        return make(
            channels=3 * len(layout.cameras),
            pinned_channels=3 * len(layout.pinned),
            context=layout.context,
            chunk=layout.chunk,
            state_dim=len(layout.state.low),
            action_dim=len(layout.action.low),
            **settings,
        )
    except TypeError as error:
        raise UserError(f"world_model settings do not fit {target}: {error}") from error
