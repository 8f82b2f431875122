import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file

from robowm.artefacts import read_artefact
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.reward import train
from robowm.reward.success import load_success_classifier
from robowm.train.weights import WEIGHTS
from tests.reward.stores import make_store

SHORT = {"task": "fake/right", "width": 8, "batch_size": 16, "device": "cpu", "precision": "fp32"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    make_store(folder / "train", range(10_000, 10_024))
    make_store(folder / "validation", [60_000, 60_001, 60_003, 60_002, *range(60_004, 60_024)])
    return {"stores": [folder / "train"], "validation_stores": [folder / "validation"]}


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "classifier"
    return folder, train.run(**data, output_dir=folder, steps=150, **SHORT)


def test_it_learns_what_success_looks_like(trained):
    _, measured = trained
    assert measured["precision"] >= 0.9 and measured["recall"] >= 0.5 and measured["auc_per_step"] > 0.95
    assert measured["target_reached_when_chosen"] and measured["threshold"] >= 0.5
    assert sum(measured["confusion"].values()) == measured["episodes"] == 12
    rows = {row["metric"]: row for row in measured["rows"]}
    assert rows["precision/success_classifier"]["task"] == "fake/right" and rows["recall/success_classifier"]["n"] > 0


def test_a_loaded_classifier_judges_episodes(trained, data):
    folder, measured = trained
    classifier = load_success_classifier(folder, device="cpu")
    assert classifier.name == read_artefact(folder, "success_classifier")["fingerprint"]
    assert classifier.threshold == measured["threshold"]
    store = EpisodeStore.open(data["validation_stores"][0])
    verdicts = [classifier.judge(store.episode(i).frames) for i in range(len(store))]
    truth = [meta.success == 1 for meta in store.metas]
    assert np.mean([verdict.success == true for verdict, true in zip(verdicts, truth, strict=True)]) > 0.8
    for verdict in verdicts:
        assert (verdict.confirmed is not None) == verdict.success


def test_a_finished_run_returns_at_once(trained, data):
    folder, measured = trained
    assert train.run(**data, output_dir=folder, steps=150, **SHORT) == json.loads(json.dumps(measured))
    with pytest.raises(UserError, match=r"config\.steps = 150, now asked with 151"):
        train.run(**data, output_dir=folder, steps=151, **SHORT)


def test_fifty_and_fifty_steps_equal_a_hundred(data, tmp_path, monkeypatch):
    options = {"steps": 100, "save_every": 50, **SHORT}
    train.run(**data, output_dir=tmp_path / "whole", **options)
    draw = train.RowSampler.batch

    def dies(self, step):
        if step == 60:
            raise KeyboardInterrupt
        return draw(self, step)

    monkeypatch.setattr(train.RowSampler, "batch", dies)
    with pytest.raises(KeyboardInterrupt):
        train.run(**data, output_dir=tmp_path / "cut", **options)
    monkeypatch.setattr(train.RowSampler, "batch", draw)
    train.run(**data, output_dir=tmp_path / "cut", **options)
    one, other = (load_file(tmp_path / run / WEIGHTS) for run in ("whole", "cut"))
    assert all((one[name] == other[name]).all() for name in one)
    records = [read_artefact(tmp_path / run) for run in ("whole", "cut")]
    assert records[0]["fingerprint"] == records[1]["fingerprint"]


def test_a_damaged_or_foreign_artefact_is_refused(trained, tmp_path):
    shutil.copytree(trained[0], tmp_path / "copy")
    (tmp_path / "copy" / WEIGHTS).write_bytes(b"nonsense")
    with pytest.raises(UserError, match=WEIGHTS):
        load_success_classifier(tmp_path / "copy", device="cpu")


def test_the_threshold_says_when_it_cannot_reach_its_precision():
    scores = np.array([0.9, 0.8, 0.7, 0.2])
    assert train.choose_threshold(scores, np.array([1, 1, 0, 0], bool), 0.95) == (0.75, True)
    threshold, reached = train.choose_threshold(scores, np.array([0, 1, 1, 0], bool), 0.95)
    assert not reached and threshold == pytest.approx(0.7)
    assert train.choose_threshold(scores, np.zeros(4, bool), 0.95) == (0.5, False)


def test_with_enough_successes_the_threshold_leaves_room_for_one_more_mistake():
    scores = np.linspace(1, 0.5, 41)
    truth = np.arange(41) < 30
    truth[20] = False
    threshold, reached = train.choose_threshold(scores, truth, 0.95)
    assert reached and threshold == pytest.approx(scores[19:21].mean())


def test_both_halves_get_their_share_of_successes():
    truth = np.array([1, 0, 1, 0, 1, 0, 1, 0, 0], bool)
    np.testing.assert_array_equal(train.every_other(truth), [1, 1, 0, 0, 1, 1, 0, 0, 1])


def test_a_store_without_the_camera_is_named(data, tmp_path):
    with pytest.raises(UserError, match="no camera 'wirst'; did you mean 'wrist'"):
        train.run(**data, output_dir=tmp_path, steps=1, cameras=["wirst"], **SHORT)


def test_reliability_covers_every_validation_step(trained):
    bins = trained[1]["reliability"]
    assert sum(bins["count"]) == 24 * 12 and len(bins["predicted"]) == len(bins["observed"]) == 10
    assert all((p is None) == (n == 0) for p, n in zip(bins["predicted"], bins["count"], strict=True))


def test_validating_on_an_episode_that_is_trained_on_is_refused(data, tmp_path):
    shared = {**data, "validation_stores": data["stores"]}
    with pytest.raises(UserError, match=r"shares \d+ episodes with the training stores"):
        train.run(**shared, output_dir=tmp_path / "out", steps=1, **SHORT)
