from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from robowm.data.fake import fake_episode, fake_spec, fake_store
from robowm.data.store import EpisodeStore, StoreSpec
from robowm.errors import UserError
from robowm.evaluation.bench import inverse, long_roll
from robowm.evaluation.bench.counterfactual import record_counterfactuals
from robowm.evaluation.bench.inverse import ActionError, InverseDynamics, read_actions, train_reader
from robowm.evaluation.bench.regimes import RegimeScores, name_of
from robowm.evaluation.world_models import still
from robowm.rollout import run_episodes
from robowm.train.optim import OptimConfig
from sim.discs import DiscsEnv, Regimes, Wander
from tests.evaluation.bench.fakes import DRAWN, Film


@pytest.fixture(scope="module")
def group():
    return [fake_episode(fake_spec(), 12, seed) for seed in (3, 4)]


# ---------------------------------------------------------------------- inverse dynamics


def glow(path, seeds):
    """A store whose pictures brighten by as much as the action says: a reader can learn it in some steps."""
    spec = fake_spec({"external": (16, 16)})
    store = EpisodeStore.create(path, spec)
    for seed in seeds:
        episode = fake_episode(spec, 12, seed)
        action = np.random.default_rng(seed).uniform(-1, 1, (12, 1)).astype(np.float32) * np.ones((1, 5), np.float32)
        level = 128 + np.concatenate([[0], np.cumsum(action[:, 0])]) * 20
        frames = np.broadcast_to(level[:, None, None, None].clip(0, 255), (13, 16, 16, 3)).astype(np.uint8)
        store.append(replace(episode, action=action, frames={"external": frames}))
    return store


SETTINGS = InverseDynamics(
    steps=60, batch_size=16, width=8, device="cpu", save_every=20, optim=OptimConfig(lr=3e-3, warmup_steps=5, ema=0.9)
)


def test_the_reader_learns_what_frames_say_and_resumes_exactly(tmp_path, monkeypatch):
    store, held_out = glow(tmp_path / "train", range(12)), glow(tmp_path / "held_out", (50, 51))
    _, whole = train_reader(SETTINGS, [{"path": store.path}], ["external"], tmp_path / "whole")
    real = inverse.fit
    monkeypatch.setattr(inverse, "fit", lambda learner, **words: real(cut(learner, 30), **words))
    with pytest.raises(KeyboardInterrupt):
        train_reader(SETTINGS, [{"path": store.path}], ["external"], tmp_path / "cut")
    monkeypatch.setattr(inverse, "fit", real)
    name, resumed = train_reader(SETTINGS, [{"path": store.path}], ["external"], tmp_path / "cut")
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True))
    again, loaded = train_reader(SETTINGS, [{"path": store.path}], ["external"], tmp_path / "cut")
    assert again == name and all(
        torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), resumed.state_dict().values(), strict=True)
    )
    episodes = [held_out.episode(i) for i in range(2)]
    shown = {"external": np.stack([e.frames["external"] for e in episodes])}
    right = ActionError(name, resumed, "action_error/x")(shown, {}, episodes)
    wrong = ActionError(name, resumed, "action_error/x")(shown, {}, episodes[::-1])
    assert max(r["action_error/x"] for r in right) < 0.5 * min(w["action_error/x"] for w in wrong)
    assert read_actions(resumed, shown).shape == (2, 12, 5)


def cut(learner, at):
    def batch(step):
        if step == at:
            raise KeyboardInterrupt
        return learner.batch(step)

    return replace(learner, batch=batch)


# ---------------------------------------------------------------------- long rolls


def test_a_model_that_fades_to_grey_collapses_and_one_that_does_not_keeps_its_picture(group):
    fading, lively = (long_roll.roll(Film(name, DRAWN[name]), group, 80) for name in ("fading", "lively"))
    assert fading.collapsed().all() and not lively.collapsed().any()
    contrast = fading.ratios["contrast/wrist"]
    assert contrast.shape == (2, 10) and (contrast[:, 0] > 0.5).all() and (contrast[:, -1] < 0.01).all()
    assert (fading.ratios["change/wrist"][:, -1] == 0).all()
    assert min(lively.seconds) > 0 and min(lively.rss_mib) > 10


def test_a_model_that_flickers_collapses_though_its_contrast_stays(group):
    flickering = long_roll.roll(Film("flickering", DRAWN["flickering"]), group, 80)
    assert flickering.collapsed().all() and (flickering.ratios["contrast/wrist"][:, -1] < 1.5).all()
    assert any("change/wrist" in note for note in long_roll.notes(flickering, "task", "flickering", 80))


def test_real_frames_have_the_ratio_one(group):
    class Recorded(Film):
        def __init__(self):
            super().__init__("recorded", None)

        def predict(self, memory, actions, rngs):
            obs, after = Film("x", DRAWN["held"]).predict(memory, actions, rngs)
            rows = (np.arange(memory.t, memory.t + 4)) % 12 + 1
            frames = {camera: np.stack([e.frames[camera][rows] for e in group]) for camera in obs.frames}
            return replace(obs, frames=frames), after

    course = long_roll.roll(Recorded(), group, 120)
    for name, ratio in course.ratios.items():
        assert ratio.mean() == pytest.approx(1, abs=0.15), name


def test_measures_are_in_grey_levels():
    frames = np.zeros((1, 3, 4, 4, 3), np.uint8)
    frames[:, 1, :, ::2] = 200
    assert long_roll.contrast(frames).tolist() == [[0.0, 100.0, 0.0]]
    assert long_roll.change(frames).tolist() == [[100.0, 100.0]]
    tinted = np.full((4, 4, 3), (0, 100, 200), np.uint8)
    assert long_roll.contrast(tinted) == 0, "an even colour has no contrast"


def test_a_roll_of_fewer_than_ten_chunks_is_refused(group):
    with pytest.raises(UserError, match=r"long_roll\.frames=36 is fewer than ten chunks of 4"):
        long_roll.roll(Film("held", DRAWN["held"]), group, 36)


# ---------------------------------------------------------------------- counterfactual actions


@pytest.fixture(scope="module")
def discs(tmp_path_factory):
    store = EpisodeStore.create(tmp_path_factory.mktemp("discs") / "store", StoreSpec(**DiscsEnv().spec()))
    for rollout in run_episodes(DiscsEnv(2), Wander(), range(100_000, 100_005), max_steps=12, kind="rollout"):
        store.append(rollout.episode)
    return store


def test_the_next_episode_s_actions_are_executed_from_each_start_and_a_cut_resumes(discs, tmp_path):
    numbers = np.array([0, 2, 4])
    store = record_counterfactuals(DiscsEnv(2), discs, numbers, 8, tmp_path / "a")
    for i, (own, other) in enumerate(((0, 2), (2, 4), (4, 0))):
        made, recorded = store.episode(i), discs.episode(own)
        assert made.source.seed == recorded.source.seed and np.array_equal(made.frames["top"][0], recorded.frames["top"][0])
        assert np.array_equal(made.action, discs.episode(other).action[:8])
        assert not np.array_equal(made.state[-1], recorded.state[8])

    class Tiring(DiscsEnv):
        def step(self, actions, active):
            if len(actions) == 1:
                raise KeyboardInterrupt
            return super().step(actions, active)

    with pytest.raises(KeyboardInterrupt):
        record_counterfactuals(Tiring(2), discs, numbers, 8, tmp_path / "b")
    assert record_counterfactuals(DiscsEnv(2), discs, numbers, 8, tmp_path / "b").fingerprint() == store.fingerprint()


def test_another_simulator_is_refused(discs, tmp_path):
    class Shifted(DiscsEnv):
        def reset(self, seeds):
            return super().reset([seed + 1 for seed in seeds])

    with pytest.raises(UserError, match=r"from start seed 100000 env begins with state .* give the env that the store was recorded in"):
        record_counterfactuals(Shifted(2), discs, np.arange(2), 8, tmp_path / "a")
    other = fake_store(tmp_path / "fake", [8, 8])
    with pytest.raises(UserError, match="env takes delta actions"):
        record_counterfactuals(DiscsEnv(2), other, np.arange(2), 8, tmp_path / "b")


# ---------------------------------------------------------------------- small things


def test_standing_still_depends_on_what_actions_mean(group):
    actions = np.stack([episode.action for episode in group])
    assert not still(actions, "delta").any()
    assert np.array_equal(still(actions, "absolute"), actions[:, :1].repeat(12, 1))


def masks(episode, from_row=0):
    return {"late": np.arange(len(episode) + 1) >= from_row}


def test_regimes_have_a_name_that_is_the_same_in_every_process():
    assert name_of(masks) == "tests.evaluation.bench.test_parts.masks()"
    assert name_of(partial(masks, from_row=3)) == "tests.evaluation.bench.test_parts.masks(from_row=3)"
    assert name_of(Regimes(margin=0.1)) == "Regimes(margin=0.1, speed=0.05)"


def test_masks_of_a_wrong_shape_or_name_are_refused(group):
    scores = {"psnr/wrist": np.ones((2, 8))}
    with pytest.raises(UserError, match="regimes gave 'contact' with shape"):
        RegimeScores(lambda episode: {"contact": np.ones(len(episode), bool)})({}, scores, group)
    with pytest.raises(UserError, match="regimes gave 'mean'"):
        RegimeScores(lambda episode: {"mean": np.ones(len(episode) + 1, bool)})({}, scores, group)
