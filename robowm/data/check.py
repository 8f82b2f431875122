"""Looks through a store for what goes wrong silently: each finding is one sentence with the number that gave it away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from robowm.data.normalize import RANGE_EPS
from robowm.data.spec import check_episode, describe
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.types import Episode, pictures

MANY = 0.9  # share of steps from which a coincidence is a pattern
SAME = 1e-6  # metres or radians: equal up to rounding


@dataclass(frozen=True)
class Finding:
    """Something about a store that its user should know."""

    level: Literal["error", "warning"]
    key: str  # array or fact concerned
    text: str
    episode: int | None = None  # None: about the whole store

    def __str__(self) -> str:
        where = "" if self.episode is None else f"episode {self.episode}: "
        return f"{self.level}: {where}{self.key}: {self.text}"


def check(store: EpisodeStore) -> list[Finding]:
    """Return everything suspicious about ``store``: damage, NaN, frozen cameras, constant dimensions, mixed-up conventions.

    Reads every episode once; memory grows with states and actions, not with frames.
    """
    if len(store) == 0:
        return [Finding("error", "store", f"{store.path} holds no episodes")]
    findings, whole = [], []
    for i in range(len(store)):
        try:
            episode = store.episode(i)
            check_episode(store.spec, episode)
        except UserError as error:
            findings.append(Finding("error", "episode", str(error), i))
            continue
        if describe(episode).content != store.meta(i).content:
            findings.append(Finding("error", "content", "differs from the hash that was recorded with it; the file was changed", i))
        findings += [*_camera_findings(episode, i), *_length_findings(episode, i)]
        whole.append(_without_frames(episode))
    return [*findings, *_store_findings(store), *_number_findings(store, [e for e in whole if len(e)])]


def _without_frames(episode: Episode) -> Episode:
    return Episode(**{**episode.__dict__, "frames": {}})


def _length_findings(episode: Episode, i: int) -> list[Finding]:
    return [] if len(episode) else [Finding("warning", "action", "no steps, so no clip can use it", i)]


def _camera_findings(episode: Episode, i: int) -> list[Finding]:
    findings, moved = [], len(episode) > 1 and np.ptp(episode.state, axis=0).max(initial=0) > RANGE_EPS
    cameras = pictures(episode.frames)  # a mask may well be empty or stand still
    for camera in cameras:
        frames = episode.frames[camera]
        if frames.max(initial=0) == frames.min(initial=255):
            findings.append(Finding("warning", camera, f"every pixel is {frames.max(initial=0)}: the camera gave nothing", i))
        elif moved and (frames[1:] == frames[:-1]).all():
            findings.append(Finding("warning", camera, f"all {len(frames)} frames are identical while the robot moves: a frozen camera", i))
    for k, one in enumerate(cameras):
        for other in cameras[k + 1 :]:
            if np.array_equal(episode.frames[one], episode.frames[other]):
                findings.append(Finding("warning", one, f"shows the same pixels as {other}: one camera recorded twice", i))
    return findings


def _store_findings(store: EpisodeStore) -> list[Finding]:
    findings = []
    if store.interrupted:
        findings.append(Finding("warning", "store", f"{len(store.interrupted)} half-written episode(s) were set aside in interrupted/"))
    seen: dict[str, int] = {}
    for i, meta in enumerate(store.metas):
        if meta.content in seen:
            findings.append(Finding("warning", "content", f"equals episode {seen[meta.content]}: recorded or merged twice", i))
        seen.setdefault(meta.content, i)
    judged = [meta.success for meta in store.metas if meta.judged_by]
    if not judged:
        findings.append(Finding("warning", "success", "no episode is judged, so only_success keeps nothing"))
    return findings


def _number_findings(store: EpisodeStore, episodes: list[Episode]) -> list[Finding]:
    if not episodes:
        return []
    spec = store.spec
    state, after = np.concatenate([e.state[:-1] for e in episodes]), np.concatenate([e.state[1:] for e in episodes])
    action = np.concatenate([e.action for e in episodes])
    findings = []
    for key, names, rows in (
        ("observation.state", spec.state_names, np.concatenate([state, after[-1:]])),
        ("action", spec.action_names, action),
    ):
        for name, spread, value in zip(names, np.ptp(rows, axis=0), rows[0], strict=True):
            if spread < RANGE_EPS:
                findings.append(Finding("warning", key, f"{name} is always {value:.6g}; the normaliser maps it to 0"))
    pairs = [(a, spec.state_names.index(name)) for a, name in enumerate(spec.action_names) if name in spec.state_names]
    motion = [(a, s) for a, s in pairs if "gripper" not in spec.action_names[a] and np.ptp(action[:, a]) > RANGE_EPS]
    if motion:
        a, s = (list(column) for column in zip(*motion, strict=True))
        findings += _motion_findings(spec.action_kind, state[:, s], after[:, s], action[:, a])
    return [*findings, *_gripper_findings(store, state, action)]


def _motion_findings(kind: str, state: np.ndarray, after: np.ndarray, action: np.ndarray) -> list[Finding]:
    """Compare actions [M, D] with the state of the same name before and after them."""
    findings = []
    still, leak = (np.mean((np.abs(action - rows) < SAME).all(1)) for rows in (state, after))
    if kind == "absolute" and still > MANY:
        text = f"equals the current state in {still:.0%} of the steps: a policy that clones it never moves (paired one step late?)"
        findings.append(Finding("warning", "action", text))
    elif kind == "absolute" and leak > MANY:
        text = f"equals the next state in {leak:.0%} of the steps: it was rebuilt from measurements and tells the outcome"
        findings.append(Finding("warning", "action", text))
    as_target, as_delta = _correlation(action, after), _correlation(action, after - state)
    if kind == "absolute" and as_delta > 0.5 and as_delta - as_target > 0.3:
        text = f"follows the change of the state (r = {as_delta:.2f}), not the state (r = {as_target:.2f}): deltas declared as absolute?"
        findings.append(Finding("warning", "action", text))
    if kind == "delta" and as_target > 0.8 and as_target - as_delta > 0.3:
        text = f"follows the state (r = {as_target:.2f}), not its change (r = {as_delta:.2f}): absolute targets declared as deltas?"
        findings.append(Finding("warning", "action", text))
    return findings


def _gripper_findings(store: EpisodeStore, state: np.ndarray, action: np.ndarray) -> list[Finding]:
    spec, findings = store.spec, []
    for a, name in enumerate(spec.action_names):
        if "gripper" not in name:
            continue
        low, high = float(action[:, a].min()), float(action[:, a].max())
        if spec.gripper is None:
            text = f"{name} runs from {low:.3g} to {high:.3g} and its convention is unknown; import again with gripper=[open, closed]"
            findings.append(Finding("warning", "action", text))
            continue
        first, last = sorted(spec.gripper)
        margin = 0.05 * (last - first)
        if low < first - margin or high > last + margin:
            declared = f"declared open {spec.gripper[0]:g} and closed {spec.gripper[1]:g}"
            text = f"{name} runs from {low:.3g} to {high:.3g}, {declared}: another convention?"
            findings.append(Finding("warning", "action", text))
        if name in spec.state_names:
            r = _correlation(action[:, [a]], state[:, [spec.state_names.index(name)]])
            if r < -0.5:
                findings.append(
                    Finding("warning", "action", f"{name} runs against its state (r = {r:.2f}): open and closed are swapped in one")
                )
    return findings


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return the median correlation over the columns of [M, D] arrays that vary."""
    a, b = a - a.mean(0), b - b.mean(0)
    scale = np.sqrt((a**2).mean(0) * (b**2).mean(0))
    varying = scale > SAME**2
    return float(np.median((a * b).mean(0)[varying] / scale[varying])) if varying.any() else 0.0
