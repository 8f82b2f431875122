"""Latencies are of the policies named, at recorded moments, and a slower one shows."""

import time

import numpy as np
import pytest

from robowm.artefacts import read_artefact
from robowm.data.fake import fake_store
from robowm.errors import UserError
from robowm.evaluation.bench.latency import moments, run
from tests.fakes import NoisePolicy


class Slow(NoisePolicy):
    def __init__(self, name, seconds):
        super().__init__()
        self.name, self._seconds, self.asked = name, seconds, 0

    def act(self, obs, memory, rngs):
        time.sleep(self._seconds)
        self.asked += 1
        return super().act(obs, memory, rngs)


def test_a_slower_policy_has_a_larger_ratio(tmp_path):
    store = fake_store(tmp_path / "store", [6, 9])
    policies = {"base": Slow("a", 0.002), "guided": Slow("b", 0.02)}
    summary = run(policies=policies, store=store.path, task="fake/counter", output_dir=tmp_path / "out", episodes=3, replans=4)
    rows = {(row["arm"], row["metric"]): row for row in summary["rows"]}
    assert set(rows) == {("base", "latency_ms/act@p50"), ("guided", "latency_ms/act@p50"), ("guided", "ratio/act")}
    assert rows["guided", "latency_ms/act@p50"]["value"] >= 20 and rows["guided", "ratio/act"]["low"] > 1
    assert read_artefact(tmp_path / "out")["kind"] == "bench" and policies["base"].asked == 6
    assert run(policies=policies, store=store.path, task="fake/counter", output_dir=tmp_path / "out", episodes=3, replans=4) == summary
    assert policies["base"].asked == 6


def test_moments_are_rows_of_the_episodes_and_a_function_of_the_seed(tmp_path):
    store = fake_store(tmp_path / "store", [6, 9])
    first, again = moments(store, 3, 5, seed=1), moments(store, 3, 5, seed=1)
    assert len(first) == 5 and all(len(obs) == 3 for obs in first)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.state, b.state)
    episode = store.episode(1)
    assert all((episode.state == obs.state[1]).all(1).any() for obs in first)


def test_nothing_to_time_is_one_line(tmp_path):
    store = fake_store(tmp_path / "store", [6])
    with pytest.raises(UserError, match="give policies"):
        run(policies={}, store=store.path, task="t", output_dir=tmp_path / "out")
