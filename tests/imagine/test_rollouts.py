import json

import numpy as np
import pytest

from robowm.artefacts import read_artefact
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.imagine import rollouts
from robowm.types import Controller
from tests.fakes import NoisePolicy
from tests.imagine.fakes import Brightening, DarkStarts, observe, reader


def imagine(folder, world_model=None, **options):
    options = {"max_steps": 6, "stop_after_success": 1, "n": 4, **options}
    parts = {"policy": NoisePolicy(chunk=2), "classifier": reader(), "starts": DarkStarts()}
    return rollouts.run(world_model=world_model or Brightening(), output_dir=folder, **parts, **options)


def ledger(folder):
    return [json.loads(line) for line in (folder / rollouts.LEDGER).read_text().splitlines()]


def test_successes_are_cut_judged_and_stored_with_their_origin(tmp_path):
    counts = imagine(tmp_path, episodes=20)
    store = EpisodeStore.open(tmp_path)
    assert sum(counts.values()) == 20 and 0 < counts["kept"] == len(store) < 20
    assert counts["no success"] == 20 - counts["kept"]
    for i in range(len(store)):
        episode = store.episode(i)
        assert (episode.success, episode.judged_by) == (1.0, "judge")
        assert (episode.source.kind, episode.source.policy, episode.source.world_model) == ("imagined", "fake.noise", "brightening")
        assert set(episode.controller) == {Controller.POLICY}
        held = episode.reward >= 0.6
        assert held[-2:].all() and held.sum() in (2, 3)  # two rows confirm, one more step follows unless time is up
    record = read_artefact(tmp_path, "store")
    assert record["counts"] == counts
    assert record["inputs"] == {"world_model": "brightening", "policy": "fake.noise", "success_classifier": "judge"}


def test_enough_successes_end_it_and_the_batch_size_does_not_matter(tmp_path):
    one = imagine(tmp_path / "a", until_successes=6, n=4)
    other = imagine(tmp_path / "b", until_successes=6, n=7)
    assert one == other and one["kept"] == 6
    assert EpisodeStore.open(tmp_path / "a").fingerprint() == EpisodeStore.open(tmp_path / "b").fingerprint()
    assert ledger(tmp_path / "a") == ledger(tmp_path / "b")


def test_an_interrupted_run_ends_in_the_same_store(tmp_path, monkeypatch):
    imagine(tmp_path / "whole", episodes=20)
    add = rollouts._Journal.add

    def dies(self, episode, line, *, keep):
        add(self, episode, line, keep=keep)
        if len(self.reasons) == 15:
            raise KeyboardInterrupt  # episodes are stored whose lines are not written yet

    monkeypatch.setattr(rollouts._Journal, "add", dies)
    with pytest.raises(KeyboardInterrupt):
        imagine(tmp_path / "cut", episodes=20)
    assert len(ledger(tmp_path / "cut")) == 12
    monkeypatch.setattr(rollouts._Journal, "add", add)
    imagine(tmp_path / "cut", episodes=20, n=3)
    assert EpisodeStore.open(tmp_path / "cut").fingerprint() == EpisodeStore.open(tmp_path / "whole").fingerprint()
    assert ledger(tmp_path / "cut") == ledger(tmp_path / "whole")


def test_two_noise_draws_must_agree(tmp_path):
    alone = imagine(tmp_path / "alone", episodes=40)
    both = imagine(tmp_path / "both", episodes=40, agreement=True)
    assert both["noise draws disagree"] > 0 and both["kept"] > 0
    assert both["kept"] + both["noise draws disagree"] == alone["kept"]


def test_a_success_before_its_time_is_dropped(tmp_path):
    counts = imagine(tmp_path, episodes=20, min_steps=6)
    assert counts["success too early"] > 0
    steps = [line["steps"] for line in ledger(tmp_path) if line["reason"] == "success too early"]
    assert max(steps) <= 6


def test_failures_can_be_kept_to_measure_the_judge(tmp_path):
    counts = imagine(tmp_path, episodes=12, keep_failures=True)
    metas = EpisodeStore.open(tmp_path).metas
    assert len(metas) == 12 and sum(meta.success for meta in metas) == counts["kept"]


def test_used_up_starts_come_again_with_other_noise(tmp_path):
    starts = DarkStarts()
    starts.seeds = range(30_000, 30_003)
    rollouts.run(
        world_model=Brightening(),
        policy=NoisePolicy(chunk=2),
        classifier=reader(),
        starts=starts,
        output_dir=tmp_path,
        max_steps=6,
        episodes=7,
        n=4,
        keep_failures=True,
    )
    assert [(line["seed"], line["draw"]) for line in ledger(tmp_path)] == [(30_000 + i % 3, i // 3) for i in range(7)]
    store = EpisodeStore.open(tmp_path)
    assert not np.array_equal(store.episode(0).action, store.episode(3).action)


def test_a_world_that_never_succeeds_is_told(tmp_path):
    class Dark(Brightening):
        def predict(self, memory, actions, rngs):
            obs, _ = super().predict(memory, actions, rngs)
            return observe(obs.state[..., 0] * 0), memory

    with pytest.raises(UserError, match="0 of 1 imagined successes after 400 tries"):
        imagine(tmp_path, Dark(), until_successes=1, n=100)
    with pytest.raises(UserError, match="exactly one"):
        imagine(tmp_path / "x")
