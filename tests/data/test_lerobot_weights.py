"""Weights reach lerobot's own sample weighting as they were wanted, and its training command takes them."""

import sys

import numpy as np
import pytest
import torch

from robowm.data.fake import fake_spec, fake_store
from robowm.data.lerobot_weights import FILE, ballast, export_weighted, main, progress_of, sample_weights, weights_table
from robowm.data.sidecar import write_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError

LENGTHS = np.array([30, 7, 3, 20])


def some_weights(kind):
    rng = np.random.default_rng(0)
    return {
        "gates": rng.uniform(0, 2, 60),
        "mostly nought": (rng.random(60) < 0.1) * 3.0,
        "ones": np.ones(60),
        "nought or one": (np.arange(60) < 30).astype(float),
    }[kind].astype(np.float32)


def test_a_samples_weight_is_the_mean_over_its_chunk_within_its_episode():
    found = sample_weights(np.array([1.0, 3, 5, 0, 2]), np.array([3, 2]), 2)
    assert found.tolist() == [2, 4, 5, 1, 2]


def test_progress_grows_by_what_was_wanted_over_a_chunk_cut_at_the_end():
    wanted = np.random.default_rng(1).random(9)
    progress = progress_of(wanted, 4)
    assert len(progress) == 10
    for t in range(9):
        assert progress[min(t + 4, 9)] - progress[t] == pytest.approx(wanted[t])


@pytest.mark.parametrize("kind", ["gates", "mostly nought", "ones", "nought or one"])
def test_what_is_added_brings_mean_and_deviation_to_the_values_at_which_weights_pass(kind):
    grown = some_weights(kind).astype(float)
    both = np.concatenate([grown / grown.max(), ballast(grown / grown.max())])
    assert both.mean() == pytest.approx(0.5, abs=1e-9) and both.std() == pytest.approx(0.25, abs=1e-9)


@pytest.mark.parametrize("kind", ["gates", "mostly nought", "nought or one"])
def test_lerobots_reader_gives_back_our_weights(kind, tmp_path):
    import pandas
    from lerobot.rewards.sarm.rabc import RABCWeights

    weight = some_weights(kind)
    pandas.DataFrame(weights_table(weight, LENGTHS, 5)).to_parquet(tmp_path / FILE)
    reader = RABCWeights(tmp_path / FILE, chunk_size=5, kappa=1e9, device=torch.device("cpu"))
    frames = np.concatenate([np.arange(length) + LENGTHS[:e].sum() + e for e, length in enumerate(LENGTHS)])  # but the last of each
    found = reader.compute_batch_weights({"index": torch.from_numpy(frames)})[0].numpy()
    wanted = sample_weights(weight, LENGTHS, 5)
    np.testing.assert_allclose(found / found.mean(), wanted / wanted.mean(), atol=2e-5)


def test_weights_that_weigh_nothing_are_refused():
    for bad in (np.zeros(60), np.full(60, np.nan), -np.ones(60)):
        with pytest.raises(UserError, match="weights must be finite"):
            weights_table(bad.astype(np.float32), LENGTHS, 5)


def test_lerobot_train_takes_the_export_by_its_documented_command(tmp_path, monkeypatch, capsys):
    from lerobot.scripts import lerobot_train

    store = fake_store(tmp_path / "store", [20, 12], spec=fake_spec())
    weight = np.linspace(0, 2, 32, dtype=np.float32)
    write_sidecar(store, "habc", {"weight": weight})
    root = tmp_path / "dataset"
    export_weighted(EpisodeStore.open(store.path), "habc", root, 15, use_videos=False)
    words = ["--dataset.repo_id=local/dataset", f"--dataset.root={root}", "--policy.type=robowm_diffusion", "--policy.device=cpu"]
    words += ["--policy.discover_packages_path=robowm.policy.lerobot_small", "--policy.push_to_hub=false", "--policy.denoiser_width=32"]
    words += ["--sample_weighting.type=rabc", "--sample_weighting.kappa=1e9", f"--sample_weighting.progress_path={root / FILE}"]
    words += ["--policy.encoder_width=8", "--policy.encoder_features=8", "--steps=2", "--batch_size=4", "--num_workers=0", "--log_freq=1"]
    monkeypatch.setattr(sys, "argv", ["lerobot-train", *words, f"--output_dir={tmp_path / 'run'}"])
    seen = []
    update = lerobot_train.update_policy

    def watched(*arguments, **options):
        found = update(*arguments, **options)
        seen.append(found[1])
        return found

    monkeypatch.setattr(lerobot_train, "update_policy", watched)
    lerobot_train.main()
    assert len(seen) == 2 and all(0 < each["sample_weight_mean_weight"] < 1 for each in seen)
    assert (tmp_path / "run" / "checkpoints" / "last" / "pretrained_model" / "model.safetensors").is_file()
    assert main([str(store.path), "none", str(tmp_path / "x"), "15"]) == 2
    assert "no sidecar 'none'" in capsys.readouterr().err
