"""check names the tell-tale patterns and stays silent on a sound store."""

import dataclasses

import numpy as np
import pytest

from robowm.data.check import check
from robowm.data.fake import fake_episode, fake_spec
from robowm.data.store import EpisodeStore


def changed(**changes):
    """Return a function that replaces fields of an episode, each by a function of the episode."""
    return lambda episode: dataclasses.replace(episode, **{name: value(episode) for name, value in changes.items()})


def column(key, at, value):
    def replace(episode):
        rows = getattr(episode, key).copy()
        rows[:, at] = value(episode)
        return rows

    return replace


def sound(episode):
    """Let every state dimension follow its target one step later, with some error, as a robot does."""
    state = episode.state.copy()
    state[1:] = episode.action + np.random.default_rng(len(episode)).normal(0, 0.004, episode.action.shape)
    return dataclasses.replace(episode, state=state.astype(np.float32))


def findings(tmp_path, change=lambda episode: episode, spec=None):
    store = EpisodeStore.create(tmp_path / "s", spec or fake_spec())
    for seed in range(3):
        store.append(change(sound(fake_episode(store.spec, 40 + seed, seed))))
    return [str(finding) for finding in check(EpisodeStore.open(store.path))]


def frozen(episode):
    return {c: np.repeat(f[:1], len(f), 0) for c, f in episode.frames.items()}


def deltas(episode):
    return np.diff(episode.state, axis=0)


def test_a_sound_store_has_no_findings(tmp_path):
    assert findings(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (changed(frames=frozen), "episode 1: external: all 42 frames are identical while the robot moves"),
        (changed(frames=lambda e: {c: f * 0 for c, f in e.frames.items()}), "episode 0: wrist: every pixel is 0"),
        (changed(frames=lambda e: dict.fromkeys(e.frames, e.frames["wrist"])), "external: shows the same pixels as wrist"),
        (changed(state=column("state", 2, lambda e: 0.25)), "observation.state: z is always 0.25; the normaliser maps it to 0"),
        (changed(action=lambda e: e.state[:-1]), "action: equals the current state in 100% of the steps"),
        (changed(action=lambda e: e.state[1:]), "action: equals the next state in 100% of the steps"),
        (changed(action=deltas), "deltas declared as absolute?"),
        (changed(action=column("action", 4, lambda e: 2 * e.action[:, 4] - 1)), "gripper runs from -1 to 1, declared open 0 and closed 1"),
        (changed(action=column("action", 4, lambda e: 1 - e.action[:, 4])), "open and closed are swapped in one"),
        (changed(success=lambda e: float("nan"), judged_by=lambda e: ""), "success: no episode is judged"),
    ],
)
def test_each_pattern_is_named(tmp_path, change, text):
    assert any(text in finding for finding in findings(tmp_path, change)), findings


def test_absolute_targets_declared_as_deltas_are_named(tmp_path):
    spec = dataclasses.replace(fake_spec(), action_kind="delta")
    assert any("absolute targets declared as deltas?" in finding for finding in findings(tmp_path, spec=spec))


def test_real_deltas_declared_as_deltas_are_fine(tmp_path):
    spec = dataclasses.replace(fake_spec(), action_kind="delta", gripper=(-1.0, 1.0))
    assert findings(tmp_path, changed(action=deltas), spec) == []


def test_an_unknown_gripper_convention_is_named(tmp_path):
    spec = dataclasses.replace(fake_spec(), gripper=None)
    assert any("its convention is unknown" in finding for finding in findings(tmp_path, spec=spec))


def test_damage_duplicates_and_emptiness_are_named(tmp_path):
    store = EpisodeStore.create(tmp_path / "s", fake_spec())
    assert [str(f) for f in check(store)] == [f"error: store: {store.path} holds no episodes"]
    for length, seed in [(9, 0), (9, 0), (0, 1), (9, 2)]:
        store.append(sound(fake_episode(store.spec, length, seed)) if length else fake_episode(store.spec, 0, seed))
    data = bytearray(store.file(3).read_bytes())
    data[300] ^= 1
    store.file(3).write_bytes(data)
    texts = [str(finding) for finding in check(EpisodeStore.open(store.path))]
    assert "warning: episode 1: content: equals episode 0: recorded or merged twice" in texts
    assert "warning: episode 2: action: no steps, so no clip can use it" in texts
    assert any(text.startswith("error: episode 3: episode:") and "damaged" in text for text in texts)
