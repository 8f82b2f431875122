import json
from collections import namedtuple

import numpy as np
import pytest

from robowm.artefacts import read_artefact
from robowm.data.fake import fake_store
from robowm.errors import UserError
from robowm.evaluation import world_models
from robowm.evaluation.world_models import KIND, free_run, predict_group, run
from robowm.types import Obs
from tests.fakes import masked_store

Memory = namedtuple("Memory", "row")


class Oracle:
    """Knows the recorded episodes: shows the true frames as long as the actions are an episode's own, black ones otherwise."""

    name, chunk = "oracle", 4

    def __init__(self, store):
        self._episodes = [store.episode(i, store.spec.pictures()) for i in range(len(store))]

    def start(self, obs):
        assert obs.state.shape[1] == 1, "one true start observation and no more"
        self._task = obs.task
        where = [next(i for i, e in enumerate(self._episodes) if np.array_equal(e.state[0], s)) for s in obs.state[:, 0]]
        return Memory([(i, 0) for i in where])

    def predict(self, memory, actions, rngs):
        frames = {c: [] for c in self._episodes[0].frames}
        states, after = [], []
        for (i, t), chunk in zip(memory.row, actions, strict=True):
            episode = self._episodes[i]
            rows = np.minimum(np.arange(t + 1, t + 5), len(episode))
            right = np.array_equal(chunk[: len(episode) - t], episode.action[t : t + 4])
            for camera, shown in frames.items():
                shown.append(episode.frames[camera][rows] * right)
            states.append(episode.state[rows])
            after.append((i, t + 4))
        obs = Obs({c: np.stack(f).astype(np.uint8) for c, f in frames.items()}, np.stack(states), None, self._task)
        return obs, Memory(after)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return fake_store(tmp_path_factory.mktemp("held_out") / "store", [20, 8, 20, 24, 20, 20], first_seed=100_000)


@pytest.fixture(scope="module")
def summary(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation") / "out"
    stores = {"expert": store.path, "open_loop": store.path}
    return folder, run(world_model=Oracle(store), stores=stores, task="fake/move", output_dir=folder, horizon=20, batch=2, strips=2)


def value(summary, arm, metric, task="fake/move"):
    return next(row for row in summary["rows"] if (row["task"], row["arm"], row["metric"]) == (task, arm, metric))


def test_a_perfect_model_scores_perfectly_and_controls_do_not(summary):
    _, found = summary
    for camera in ("external", "wrist"):
        assert value(found, "world_model", f"psnr/{camera}@mean")["value"] == pytest.approx(58.92, abs=0.01)
        assert value(found, "world_model", f"ssim/{camera}@20")["value"] == pytest.approx(1)
        assert value(found, "world_model", f"lpips/{camera}@4")["value"] == pytest.approx(0, abs=1e-6)
        for arm in ("copy_last", "shuffled_actions"):
            assert value(found, arm, f"psnr/{camera}@mean")["value"] < 40


def test_only_long_enough_episodes_count_and_intervals_are_over_episodes(summary):
    _, found = summary
    row = value(found, "copy_last", "psnr/external@mean")
    assert row["n"] == 5 and row["low"] <= row["value"] <= row["high"]
    pair = next(p for p in found["pairs"] if p["b"] == "copy_last" and p["metric"] == "psnr/external@mean")
    assert pair["wins"] == 1 and pair["losses"] == 0 and pair["low"] > 0


def test_action_sets_are_named_and_the_mean_is_that_of_the_frames(summary):
    folder, found = summary
    assert {row["task"] for row in found["rows"]} == {"fake/move", "fake/move:open_loop"}
    lines = [json.loads(line) for line in (folder / world_models.EPISODES).read_text().splitlines()]
    values = next(line["values"] for line in lines if line["arm"] == "copy_last")
    curve = [values[f"psnr/wrist@{k}"] for k in (4, 8, 12, 16, 20)]
    assert np.mean(curve) == pytest.approx(values["psnr/wrist@mean"], abs=1e-4)
    assert len(lines) == 2 * 3 * 5


@pytest.mark.parametrize(("length", "points"), [(4, [4]), (20, [4, 8, 12, 16, 20]), (60, [4, 16, 28, 36, 48, 60])])
def test_a_curve_has_at_most_six_points_the_first_and_last_among_them(length, points):
    assert world_models.curve_points(length) == points


def test_strips_hold_truth_and_prediction_from_the_same_start(summary):
    folder, _ = summary
    strips = sorted((folder / world_models.STRIPS).iterdir())
    assert [path.name for path in strips] == ["expert_0.npz", "expert_1.npz", "open_loop_0.npz", "open_loop_1.npz"]
    with np.load(strips[0]) as arrays:
        assert arrays["truth/wrist"].shape == (21, 32, 32, 3) and int(arrays["chunk"]) == 4
        assert np.array_equal(arrays["truth/external"], arrays["predicted/external"])


def test_finished_folder_is_sealed_and_returns_at_once(summary, store):
    folder, found = summary
    assert read_artefact(folder, KIND)["inputs"]["world_model"] == "oracle"
    stores = {"expert": store.path, "open_loop": store.path}
    again = run(world_model=Oracle(store), stores=stores, task="fake/move", output_dir=folder, horizon=20, batch=2, strips=2)
    assert again == json.loads(json.dumps(found))


def test_shuffled_actions_are_never_an_episode_s_own_and_batches_change_nothing(store):
    oracle = Oracle(store)
    group = [store.episode(i) for i in (0, 2, 3)]
    predicted = predict_group(oracle, group, 20)
    assert not predicted["shuffled_actions"]["wrist"][:, 1:].any(), "the oracle answers another episode's actions with black"
    assert np.array_equal(predicted["copy_last"]["wrist"][:, -1], predicted["world_model"]["wrist"][:, 0])
    alone = predict_group(oracle, group[:1], 20)["world_model"]
    assert all(np.array_equal(alone[c][0], predicted["world_model"][c][0]) for c in alone)


def test_a_horizon_between_chunks_is_cut(store):
    episode = store.episode(0)
    obs = Obs({c: f[None, :1] for c, f in episode.frames.items()}, episode.state[None, :1], None, (episode.task,))
    assert free_run(Oracle(store), obs, episode.action[None, :18], [0])["wrist"].shape == (1, 19, 32, 32, 3)


def test_too_short_episodes_and_a_bad_horizon_are_named(store, tmp_path):
    settings = {"world_model": Oracle(store), "stores": {"expert": store.path}, "task": "fake/move"}
    with pytest.raises(UserError, match=r"has 0 episodes of at least horizon=60 steps; lengths are 8 to 24"):
        run(**settings, output_dir=tmp_path / "a")
    with pytest.raises(UserError, match="horizon=21; it must be a positive multiple of 4"):
        run(**settings, output_dir=tmp_path / "b", horizon=21)


def test_a_store_with_masks_adds_what_is_seen_of_object_and_gripper(tmp_path):
    store = masked_store(tmp_path / "store", [8, 8, 8, 8], first_seed=100_000, unseen=1)
    found = run(world_model=Oracle(store), stores={"expert": store.path}, task="fake/move", output_dir=tmp_path / "out", horizon=8)
    metrics = {row["metric"] for row in found["rows"] if "object" in row["metric"] or "gripper" in row["metric"]}
    assert metrics == {f"psnr_{part}/{camera}@mean" for part in ("object", "gripper") for camera in ("external", "wrist")}
    assert not any("mask" in row["metric"] for row in found["rows"])
    assert value(found, "world_model", "psnr_object/external@mean")["value"] == pytest.approx(58.92, abs=0.01)
    moved, whole = (value(found, "copy_last", f"{m}/external@mean")["value"] for m in ("psnr_object", "psnr"))
    assert moved < whole - 3, "a copy is wrong above all where the object has come to"
    assert value(found, "copy_last", "psnr_object/wrist@mean")["n"] == 3, "one episode never shows the object there"
    lines = [json.loads(line) for line in (tmp_path / "out" / world_models.EPISODES).read_text().splitlines()]
    assert "psnr_object/wrist@mean" not in lines[0]["values"]
    pair = next(p for p in found["pairs"] if (p["b"], p["metric"]) == ("copy_last", "psnr_object/wrist@mean"))
    assert pair["n"] == 3 and pair["wins"] == 1


def test_a_part_that_no_episode_shows_has_no_row(tmp_path):
    store = masked_store(tmp_path / "store", [8, 8], first_seed=100_000, unseen=2)
    found = run(world_model=Oracle(store), stores={"expert": store.path}, task="fake/move", output_dir=tmp_path / "out", horizon=8)
    assert not any(row["metric"] == "psnr_object/wrist@mean" for row in [*found["rows"], *found["pairs"]])
