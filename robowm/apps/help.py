"""``robowm <verb> --help``: keys, defaults and choices, read from the config files and the comments in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from robowm.apps.explain import choices

PACKAGE = re.compile(r"^# @package (\S+)")
LINE = re.compile(r"^(?P<indent> *)(?:- )?(?P<key>[\w.]+):(?P<value>[^#]*)(?:#\s*(?P<comment>.*))?$")


def compose_config(config_name: str, configs: Path, overrides: list[str] | None = None) -> DictConfig:
    """Compose a config without running it, with Hydra's own settings under ``hydra``; also from inside a job."""
    earlier = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(configs), version_base="1.3"):
            return compose(config_name, overrides=overrides or [], return_hydra_config=True)
    finally:
        GlobalHydra.instance().hydra = earlier


def help_text(command: str, about: str, config_name: str, configs: Path, overrides: list[str]) -> str:
    """Return the help of one verb, which does ``about``, as it stands with ``overrides``."""
    cfg = compose_config(config_name, configs, overrides)
    chosen = {group: choice for group, choice in cfg.hydra.runtime.choices.items() if not group.startswith("hydra/")}
    lines = [f"{command}: {about}", "", f"usage: {command} key=value ... [-m key=a,b]", ""]
    if chosen:
        lines.append("choices (group=choice):")
        lines += [f"  {group}={choice}  of  {', '.join(choices(configs, group))}" for group, choice in sorted(chosen.items())]
        lines.append("")
    notes = _comments(configs / f"{config_name}.yaml") | _comments(configs / "app.yaml")
    for group, choice in chosen.items():
        if choice and group != "size":
            notes |= _comments(configs / group / f"{choice}.yaml", group)
    rows = [(f"{key}={value}", notes.get(key, "")) for key, value in _leaves(cfg) if not key.startswith(("hydra.", "size."))]
    rows.sort(key=lambda row: not row[0].endswith("=???"))
    width = min(max(len(row) for row, _ in rows), 56)
    lines += ["keys (??? must be given):", *(f"  {row:<{width}}  {note}".rstrip() for row, note in rows), ""]
    lines.append(f"All numbers of size={cfg.size.name} can be set too, as size.<part>.<key>=value; see configs/size/.")
    return "\n".join(lines) + "\n"


def _leaves(node: DictConfig, prefix: str = "") -> list[tuple[str, str]]:
    """Return (dotted key, value as it would be written) of every leaf."""
    found: list[tuple[str, str]] = []
    for key in node:
        name = f"{prefix}{key}"
        if name == "hydra":
            continue
        if OmegaConf.is_missing(node, key):
            found.append((name, "???"))
            continue
        try:
            value = node[key]
        except OmegaConfBaseException:
            value = OmegaConf.to_container(node, resolve=False)[key]
        if isinstance(value, DictConfig) and len(value):
            found += _leaves(value, f"{name}.")
        else:
            found.append((name, _short(value)))
    return found


def _short(value: Any) -> str:
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, resolve=False)
    text = str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _comments(path: Path, group: str = "") -> dict[str, str]:
    """Return {dotted key: comment at the end of its line} of one YAML file of ours, whose keys lie under ``group`` or its @package."""
    found: dict[str, str] = {}
    text = path.read_text() if path.is_file() else ""
    package = match[1] if (match := PACKAGE.match(text)) else group
    stack = [(-1, package)] if package not in ("", "_global_") else []
    for line in text.splitlines():
        if not (match := LINE.match(line)):
            continue
        indent = len(match["indent"])
        stack = [entry for entry in stack if entry[0] < indent] + [(indent, match["key"])]
        if match["comment"]:
            found[".".join(key for _, key in stack)] = match["comment"]
    return found
