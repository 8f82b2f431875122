"""LeRobotDataset v3: sets that lerobot's own writer made come in; what we export, lerobot reads."""

import dataclasses
import json
import shutil

import numpy as np
import pyarrow.parquet
import pytest
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from robowm.data.fake import CORNERS, fake_episode, fake_frames, fake_spec, fake_store, step_of_frame, step_of_row
from robowm.data.lerobot import export_lerobot, run_lerobot
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.types import Controller

FRAMES = [6, 4]  # of each episode
CONTRAST = 40  # grey levels between two frames, so that a lossy codec keeps them apart


def steps_in(frames):
    return np.rint(step_of_frame(frames) / CONTRAST).astype(int).tolist()


def write_with_lerobot(root, *, use_videos=False, extra=None, fps=10, size=(64, 64)):
    """Write a set as lerobot-record does, row t encoding t. ``extra`` {feature: (dtype, value of (episode, t))}."""
    axes = ["height", "width", "channels"]
    features = {f"observation.images.{c}": {"dtype": "video" if use_videos else "image", "shape": (*size, 3), "names": axes} for c in "ab"}
    features["observation.state"] = {"dtype": "float32", "shape": (2,), "names": ["x", "y"]}
    features["action"] = {"dtype": "float32", "shape": (2,), "names": {"motors": ["x", "gripper"]}}
    for key, (dtype, _) in (extra or {}).items():
        features[key] = {"dtype": dtype, "shape": (1,), "names": None}
    dataset = LeRobotDataset.create("local/test", fps, features, root=root, use_videos=use_videos)
    for e, length in enumerate(FRAMES):
        images = {c: fake_frames(size, CONTRAST * np.arange(length), e + i) for i, c in enumerate("ab")}
        for t in range(length):
            frame = {f"observation.images.{c}": images[c][t] for c in "ab"}
            frame |= {"observation.state": np.array([t / 100, e], np.float32), "action": np.array([t / 100, t % 2], np.float32)}
            frame |= {key: np.array([value(e, t)], dtype) for key, (dtype, value) in (extra or {}).items()}
            dataset.add_frame({**frame, "task": f"task {e}"})
        dataset.save_episode()
    dataset.finalize()
    return root


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lerobot")
    return [write_with_lerobot(folder / name, use_videos=name == "video") for name in ("images", "video")]


@pytest.fixture
def images(written, tmp_path):
    return shutil.copytree(written[0], tmp_path / "images")


@pytest.fixture
def video(written, tmp_path):
    return shutil.copytree(written[1], tmp_path / "video")


@pytest.mark.parametrize("use_videos", [False, True], ids=["images", "video"])
def test_a_set_that_lerobot_wrote_comes_in(tmp_path, written, use_videos):
    root = written[use_videos]
    run_lerobot(root=root, output_dir=tmp_path / "s", cameras={"external": "a", "wrist": "b"})
    store = EpisodeStore.open(tmp_path / "s")
    assert store.lengths.tolist() == [5, 3] and store.spec.fps == 10 and store.spec.cameras == {"external": (64, 64), "wrist": (64, 64)}
    assert store.spec.action_names == ["x", "gripper"] and store.spec.gripper is None
    for i, length in enumerate([5, 3]):
        episode = store.episode(i)
        assert episode.task == f"task {i}" and np.isnan(episode.success) and (episode.controller == Controller.DEMO).all()
        assert step_of_row(episode.state).tolist() == list(range(length + 1)) and step_of_row(episode.action).tolist() == list(
            range(length)
        )
        for frames in episode.frames.values():
            corners = frames[:, 2, 2], frames[:, 2, -3], frames[:, -3, 2], frames[:, -3, -3]
            for corner, colour in zip(corners, CORNERS, strict=True):
                assert np.abs(corner.astype(int) - colour).max() <= (25 if use_videos else 0)
        assert steps_in(episode.frames["external"]) == steps_in(episode.frames["wrist"]) == list(range(length + 1))


def test_video_frames_are_those_that_lerobot_itself_returns(tmp_path, video):
    root = video
    run_lerobot(root=root, output_dir=tmp_path / "s")
    episode = EpisodeStore.open(tmp_path / "s").episode(1)
    dataset = LeRobotDataset("local/test", root, return_uint8=True)
    for t in range(4):
        np.testing.assert_array_equal(episode.frames["b"][t], dataset[6 + t]["observation.images.b"].permute(1, 2, 0).numpy())


def test_success_reward_and_intervention_columns_are_kept(tmp_path):
    extra = {
        "next.success": ("bool", lambda e, t: e == 0 and t == 4),
        "next.reward": ("float32", lambda e, t: t / 10),
        "intervention": ("bool", lambda e, t: t in (2, 3)),
    }
    run_lerobot(root=write_with_lerobot(tmp_path / "set", extra=extra), output_dir=tmp_path / "s", kind="rollout", cameras=["a"])
    store = EpisodeStore.open(tmp_path / "s")
    assert [meta.success for meta in store.metas] == [1, 0] and store.meta(0).judged_by == "dataset"
    episode = store.episode(0)
    assert episode.controller.tolist() == [1, 1, 3, 3, 1] and episode.segment.tolist() == [0, 0, 1, 1, 2]
    np.testing.assert_allclose(episode.reward, np.arange(5) / 10)


def test_gripper_verdict_and_size_can_be_said(tmp_path, images):
    root = images
    run_lerobot(root=root, output_dir=tmp_path / "s", cameras=["b"], gripper=[1.0, 0.0], success=1.0, image_size=[32, 32])
    store = EpisodeStore.open(tmp_path / "s")
    assert store.episode(0).action[:, 1].tolist() == [1, 0, 1, 0, 1] and store.spec.gripper == (0.0, 1.0)
    assert store.meta(0).success == 1 and store.meta(0).judged_by == "human" and store.spec.cameras == {"b": (32, 32)}
    assert steps_in(store.episode(0).frames["b"]) == list(range(6))


# ------------------------------------------------------------------ bad input


def rewrite(root, column, change):
    path = next((root / "data").rglob("*.parquet"))
    table = pyarrow.parquet.read_table(path)
    values = change(table[column].to_numpy().copy())
    at = table.column_names.index(column)
    pyarrow.parquet.write_table(table.set_column(at, table.field(at), [values.astype(table[column].type.to_pandas_dtype())]), path)


def test_a_wrong_fps_is_named_with_episode_file_expected_and_found(tmp_path, images):
    root = images
    rewrite(root, "timestamp", lambda t: t * 10 / 9.5)
    message = r"chunk-000/file-000.parquet: frame 1 of episode 0 has timestamp 0.1053 s, expected 0.1000 at 10 fps"
    with pytest.raises(UserError, match=message):
        run_lerobot(root=root, output_dir=tmp_path / "s")


def test_an_episode_far_from_time_zero_is_named(tmp_path, images):
    root = images
    rewrite(root, "timestamp", lambda t: np.where(np.arange(10) >= 6, t + 460, t))
    with pytest.raises(UserError, match=r"frame 0 of episode 1 has timestamp 460.0000 s, expected 0.0000"):
        run_lerobot(root=root, output_dir=tmp_path / "s")
    assert len(EpisodeStore.open(tmp_path / "s")) == 1


def test_missing_frames_are_named(tmp_path, images):
    root = images
    rewrite(root, "frame_index", lambda k: np.where(np.arange(10) == 2, 3, k))
    with pytest.raises(UserError, match="row 2 of episode 0 has frame_index 3, expected 2"):
        run_lerobot(root=root, output_dir=tmp_path / "s")


def test_folders_that_are_not_whole_are_named_and_nothing_is_fetched(tmp_path, video):
    with pytest.raises(UserError, match=r"no meta/info.json"):
        run_lerobot(root=tmp_path / "none", output_dir=tmp_path / "s")
    assert not (tmp_path / "none").exists()
    root = video
    with pytest.raises(UserError, match="no camera 'c'; known: a, b"):
        run_lerobot(root=root, output_dir=tmp_path / "s", cameras=["c"])
    with pytest.raises(UserError, match="did you mean"):
        run_lerobot(root=root, output_dir=tmp_path / "s", cameras=["aa"])
    next((root / "videos").rglob("*.mp4")).unlink()
    with pytest.raises(UserError, match=r"lacks videos/.*mp4, which episode 0 needs"):
        run_lerobot(root=root, output_dir=tmp_path / "s")
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps({**info, "codebase_version": "v2.1"}))
    with pytest.raises(UserError, match=r"LeRobotDataset v2.1, expected v3; convert it with"):
        run_lerobot(root=root, output_dir=tmp_path / "s")


def test_a_recording_without_finalize_is_named(tmp_path, images):
    root = images
    path = next((root / "data").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="finalize") as error:
        run_lerobot(root=root, output_dir=tmp_path / "s")
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------ export


def with_takeover(episode):
    controller = np.array([1, 1, 2, 2, 3, 3], np.int8)
    return dataclasses.replace(episode, controller=controller, segment=np.array([0, 0, 1, 1, 2, 2], np.int32))


@pytest.fixture
def store(tmp_path):
    spec = fake_spec({"external": (64, 64), "wrist": (64, 48)})
    store = EpisodeStore.create(tmp_path / "s", spec)
    store.append(with_takeover(fake_episode(spec, 6, seed=21, kind="rollout")))
    store.append(fake_episode(spec, 3, seed=22, success=0.0, kind="rollout", task="other"))
    store.append(fake_episode(spec, 2, seed=23, success=float("nan"), kind="imagined"))
    return store


def test_export_then_import_gives_back_the_store(store, tmp_path):
    export_lerobot(store, tmp_path / "set", use_videos=False)
    run_lerobot(root=tmp_path / "set", output_dir=tmp_path / "back")
    assert EpisodeStore.open(tmp_path / "back").fingerprint() == store.fingerprint()


def test_lerobot_reads_the_export(store, tmp_path):
    export_lerobot(store, tmp_path / "set", use_videos=True)
    dataset = LeRobotDataset("local/dataset", tmp_path / "set", return_uint8=True)
    assert dataset.num_episodes == 3 and dataset.fps == 10 and len(dataset) == 6 + 3 + 2 + 3
    items = [dataset[i] for i in range(7)]
    assert [bool(item["intervention"]) for item in items] == [False, False, True, True, True, True, True]
    assert [int(item["controller"]) for item in items] == [1, 1, 2, 2, 3, 3, 3]
    assert [bool(item["next.success"]) for item in items] == [False] * 5 + [True] * 2 and not bool(dataset[10]["next.success"])
    assert step_of_row(np.stack([item["action"].numpy() for item in items])).tolist() == [0, 1, 2, 3, 4, 5, 5]
    original = store.episode(0).frames["external"].astype(float)
    for step, item in enumerate(items):
        frame = item["observation.images.external"].permute(1, 2, 0).numpy()
        assert np.abs(original - frame).mean((1, 2, 3)).argmin() == step, "the encoder repeated a frame"
        assert np.abs(frame[2, 2].astype(int) - CORNERS[0]).max() <= 25
    assert dataset[7]["task"] == "other"


def test_facts_that_no_longer_fit_are_ignored(store, tmp_path, caplog):
    export_lerobot(store, tmp_path / "set", use_videos=False)
    facts = json.loads((tmp_path / "set/meta/robowm.json").read_text())
    (tmp_path / "set/meta/robowm.json").write_text(json.dumps({**facts, "episodes": facts["episodes"][1:]}))
    run_lerobot(root=tmp_path / "set", output_dir=tmp_path / "back", kind="rollout")
    back = EpisodeStore.open(tmp_path / "back")
    assert "no longer fits" in caplog.text and [meta.source.seed for meta in back.metas] == [0, 1, 2]
    assert [meta.success for meta in back.metas] == [1, 0, 0]
    np.testing.assert_array_equal(back.episode(0).controller, store.episode(0).controller)


def test_an_export_that_lerobot_cannot_hold_is_refused(tmp_path):
    store = fake_store(tmp_path / "a", [3], spec=fake_spec(fps=29.97))
    with pytest.raises(UserError, match=r"29.97 fps"):
        export_lerobot(store, tmp_path / "set")
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="exists"):
        export_lerobot(store, tmp_path / "there")
    assert not (tmp_path / "set").exists()
