"""robomimic HDF5: files that robomimic's own scripts wrote come in, files we write are read by robomimic's own data set class."""

import json
import shutil
import types
from pathlib import Path

import h5py
import numpy as np
import pytest

from robowm.artefacts import read_artefact
from robowm.data.fake import CORNERS, fake_episode, fake_frames, fake_spec, fake_store, step_of_frame, step_of_row
from robowm.data.robomimic import export_robomimic, run_robomimic
from robowm.data.store import EpisodeStore
from robowm.errors import UserError

KEYS = {"state_keys": ["robot0_eef_pos", "robot0_gripper_qpos"], "cameras": {"external": "agentview", "wrist": "robot0_eye_in_hand"}}
LENGTHS = {"demo_0": 6, "demo_2": 9, "demo_10": 4}  # gaps, and text order differs from the order of numbers


def write_by_hand(path: Path, *, next_obs=True, obs=True, mask=None, lengths=LENGTHS) -> Path:
    """Write what robomimic's format says, row t encoding t."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for name, steps in lengths.items():
            group = data.create_group(name)
            times = np.arange(steps + 1)
            rows = {
                "agentview_image": fake_frames((16, 20), times, 0),
                "robot0_eye_in_hand_image": fake_frames((16, 16), times, 1),
                "robot0_eef_pos": np.stack([times / 100, times, times], 1),
                "robot0_gripper_qpos": np.stack([times, -times], 1) / 50,
                "object": np.stack([times] * 4, 1) / 10,
            }
            if obs:
                for key, values in rows.items():
                    group[f"obs/{key}"] = values[:-1]
                    if next_obs:
                        group[f"next_obs/{key}"] = values[1:]
            actions = np.repeat(times[:-1, None] / 100, 7, 1)
            actions[:, 6] = np.where(times[:-1] % 2, 1, -1)
            group["actions"], group["states"] = actions, np.zeros((steps, 3))
            group["rewards"] = (times[1:] == steps) * float(name != "demo_2")
            group.attrs["num_samples"] = steps
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20}})
        for key, names in (mask or {}).items():
            file[f"mask/{key}"] = np.array(names, dtype="S")
    return path


def test_a_plain_file_comes_in_whole_and_in_the_order_of_its_numbers(tmp_path):
    path = write_by_hand(tmp_path / "demo.hdf5")
    run_robomimic(path=path, output_dir=tmp_path / "s", environment_state_keys=["object"], **KEYS)
    store = EpisodeStore.open(tmp_path / "s")
    assert store.lengths.tolist() == [6, 9, 4] and [meta.source.seed for meta in store.metas] == [0, 2, 10]
    assert store.spec.fps == 20 and store.meta(0).task == "Lift" and [meta.success for meta in store.metas] == [1, 0, 1]
    episode = store.episode(1)
    for frames in episode.frames.values():
        assert step_of_frame(frames).tolist() == list(range(10))
        assert (frames[:, 0, 0] == CORNERS[0]).all() and (frames[:, -1, 0] == CORNERS[2]).all()
    assert step_of_row(episode.state).tolist() == list(range(10)) and step_of_row(episode.action).tolist() == list(range(9))
    assert episode.frames["external"].shape == (10, 16, 20, 3) and episode.environment_state.shape == (10, 4)
    assert episode.action[:, 6].tolist() == [0, 1] * 4 + [0] and store.spec.gripper == (0.0, 1.0)
    assert read_artefact(tmp_path / "s", "store")["fingerprint"] == store.fingerprint()


def test_without_next_obs_the_last_step_is_dropped(tmp_path):
    path = write_by_hand(tmp_path / "demo.hdf5", next_obs=False)
    run_robomimic(path=path, output_dir=tmp_path / "s", **KEYS)
    store = EpisodeStore.open(tmp_path / "s")
    assert store.lengths.tolist() == [5, 8, 3] and store.meta(0).success == 1
    assert step_of_frame(store.episode(0).frames["wrist"]).tolist() == list(range(6))


def test_a_mask_picks_demonstrations(tmp_path):
    path = write_by_hand(tmp_path / "demo.hdf5", mask={"train": ["demo_10", "demo_0"]})
    run_robomimic(path=path, output_dir=tmp_path / "s", filter_key="train", **KEYS)
    assert EpisodeStore.open(tmp_path / "s").lengths.tolist() == [6, 4]


def test_frames_are_scaled_on_request(tmp_path):
    path = write_by_hand(tmp_path / "demo.hdf5")
    run_robomimic(path=path, output_dir=tmp_path / "s", image_size=[8, 10], **KEYS)
    store = EpisodeStore.open(tmp_path / "s")
    assert store.spec.cameras == {"external": (8, 10), "wrist": (8, 10)}
    frames = store.episode(0).frames["external"]
    assert (frames[:, 0, 0] == CORNERS[0]).all() and (frames[:, -1, -1] == CORNERS[3]).all()


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        ({}, {"filter_key": "train"}, r"no mask/train; masks there: none; make .* robomimic.scripts.split_train_val --dataset"),
        ({"mask": {"20_percent": ["demo_0"]}}, {"filter_key": "train"}, "masks there: 20_percent"),
        ({"mask": {"train": ["demo_7"]}}, {"filter_key": "train"}, "lists 'demo_7', which is not in data"),
        ({"obs": False}, {}, r"demo_0 has no obs but actions, rewards, states; .* robomimic.scripts.dataset_states_to_obs --dataset"),
        ({}, {"cameras": ["agentvew"]}, "no camera 'agentvew'; did you mean 'agentview'"),
        ({}, {"state_keys": ["robot0_eef_quat"]}, "has no 'obs/robot0_eef_quat'; did you mean 'robot0_eef_pos'"),
        ({}, {"action_names": ["x"]}, "actions have 7 dimensions, action_names gives 1"),
        ({"lengths": {}}, {}, "holds no demonstrations"),
        ({"lengths": {"demo_a": 3}}, {}, "demo_a does not end in a number"),
    ],
)
def test_what_a_file_lacks_is_named_with_the_next_step(tmp_path, make, changes, message):
    path = write_by_hand(tmp_path / "demo.hdf5", **make)
    with pytest.raises(UserError, match=message) as error:
        run_robomimic(path=path, output_dir=tmp_path / "s", **{**KEYS, **changes})
    assert "\n" not in str(error.value)


def test_files_that_are_not_robomimic_are_named(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        run_robomimic(path=tmp_path / "no.hdf5", output_dir=tmp_path / "s", **KEYS)
    (tmp_path / "text.hdf5").write_text("hello")
    with pytest.raises(UserError, match="not a readable HDF5"):
        run_robomimic(path=tmp_path / "text.hdf5", output_dir=tmp_path / "s", **KEYS)
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["x"] = 1
    with pytest.raises(UserError, match="no group 'data' but x"):
        run_robomimic(path=tmp_path / "other.hdf5", output_dir=tmp_path / "s", **KEYS)


def test_nan_names_the_demonstration_and_a_changed_file_is_another_import(tmp_path):
    path = write_by_hand(tmp_path / "demo.hdf5")
    with h5py.File(path, "a") as file:
        file["data/demo_2/actions"][3, 1] = np.nan
    with pytest.raises(UserError, match=r"demo.hdf5 demo_2: action holds nan at row 3"):
        run_robomimic(path=path, output_dir=tmp_path / "s", **KEYS)
    assert len(EpisodeStore.open(tmp_path / "s")) == 1
    with h5py.File(path, "a") as file:
        file["data/demo_2/actions"][3, 1] = 0.03
    with pytest.raises(UserError, match=r"was begun with inputs\.source"):
        run_robomimic(path=path, output_dir=tmp_path / "s", **KEYS)
    shutil.rmtree(tmp_path / "s")
    run_robomimic(path=path, output_dir=tmp_path / "s", **KEYS)
    store = EpisodeStore.open(tmp_path / "s")
    assert [meta.source.seed for meta in store.metas] == [0, 2, 10]
    before = store.fingerprint()
    run_robomimic(path=path, output_dir=tmp_path / "s", **KEYS)
    assert EpisodeStore.open(tmp_path / "s").fingerprint() == before
    with pytest.raises(UserError, match="was begun with config"):
        run_robomimic(path=path, output_dir=tmp_path / "s", **{**KEYS, "state_keys": ["robot0_eef_pos"]})


# ------------------------------------------------------------------ robomimic's own code


def toy_environment(base):
    """Return an EnvBase whose state is the step count; its frames and positions encode it."""

    class Toy(base):
        def __init__(self):
            self._t = 0

        def get_observation(self):
            times = np.array([self._t])
            return {
                "agentview_image": fake_frames((16, 16), times, 0)[0],
                "robot0_eye_in_hand_image": fake_frames((16, 16), times, 1)[0],
                "robot0_eef_pos": np.array([self._t / 100, 0, 0]),
                "robot0_gripper_qpos": np.array([self._t, -self._t]) / 50,
            }

        def step(self, action):
            self._t += 1
            return self.get_observation(), self.get_reward(), False, {}

        def reset_to(self, state):
            self._t = int(state["states"][0])
            return self.get_observation()

        def get_reward(self):
            return float(self._t >= 5)

        def is_success(self):
            return {"task": self._t >= 5}

        def serialize(self):
            return {"env_name": "Toy", "type": 2, "env_kwargs": {"control_freq": 20}}

        def reset(self):
            return self.reset_to({"states": [0]})

    for name in base.__abstractmethods__ - set(vars(Toy)):
        setattr(Toy, name, lambda self, *_, **__: None)
    Toy.__abstractmethods__ = frozenset()
    return Toy()


@pytest.fixture
def written_by_robomimic(tmp_path, monkeypatch):
    pytest.importorskip("robomimic")
    from robomimic.envs.env_base import EnvBase
    from robomimic.scripts import dataset_states_to_obs as script
    from robomimic.scripts.split_train_val import split_train_val_from_hdf5

    with h5py.File(tmp_path / "states.hdf5", "w") as file:
        for name, steps in LENGTHS.items():
            group = file.create_group(f"data/{name}")
            group["states"] = np.arange(steps)[:, None].astype(float)
            group["actions"] = np.repeat(np.arange(steps)[:, None] / 100, 7, 1)
        file["data"].attrs["env_args"] = json.dumps({"env_name": "Toy", "type": 2, "env_kwargs": {}})
    monkeypatch.setattr(script.EnvUtils, "create_env_for_data_processing", lambda **_: toy_environment(EnvBase))
    monkeypatch.setattr(script.EnvUtils, "is_robosuite_env", lambda _: False)
    flags = {"shaped": False, "n": None, "done_mode": 0, "copy_rewards": False, "copy_dones": False, "compress": True}
    cameras = {"camera_names": [], "camera_height": 16, "camera_width": 16, "exclude_next_obs": False}
    script.dataset_states_to_obs(types.SimpleNamespace(dataset=str(tmp_path / "states.hdf5"), output_name="image.hdf5", **flags, **cameras))
    split_train_val_from_hdf5(str(tmp_path / "image.hdf5"), val_ratio=0.4)
    return tmp_path / "image.hdf5"


def test_a_file_that_robomimic_wrote_comes_in(written_by_robomimic, tmp_path):
    run_robomimic(path=written_by_robomimic, output_dir=tmp_path / "s", gripper=None, **KEYS)
    store = EpisodeStore.open(tmp_path / "s")
    assert store.lengths.tolist() == [6, 9, 4] and [meta.source.seed for meta in store.metas] == [0, 2, 10]
    assert [meta.success for meta in store.metas] == [1, 1, 0] and store.spec.gripper is None
    episode = store.episode(1)
    assert step_of_frame(episode.frames["wrist"]).tolist() == step_of_row(episode.state).tolist() == list(range(10))
    assert step_of_row(episode.action).tolist() == list(range(9)) and episode.reward.tolist() == [0] * 4 + [1] * 5
    counts = [
        run_robomimic(path=written_by_robomimic, output_dir=tmp_path / k, filter_key=k, **KEYS)["episodes"] for k in ("train", "valid")
    ]
    assert counts == [2, 1]


def test_robomimic_reads_what_we_export(tmp_path):
    pytest.importorskip("robomimic")
    from robomimic.utils import obs_utils
    from robomimic.utils.dataset import SequenceDataset

    store = fake_store(tmp_path / "s", [5, 0, 8, 3, 7])
    export_robomimic(store, tmp_path / "out.hdf5", validation=0.4)
    keys = ["external_image", "wrist_image", "state", "environment_state"]
    obs_utils.initialize_obs_utils_with_obs_specs({"obs": {"rgb": keys[:2], "low_dim": keys[2:]}})
    dataset = SequenceDataset(str(tmp_path / "out.hdf5"), keys, ["actions", "rewards", "dones"], seq_length=3, load_next_obs=True)
    assert len(dataset) == 23 and dataset.demos == ["demo_0", "demo_2", "demo_3", "demo_4"]
    item = dataset[5 + 2]  # step 2 of the second demonstration
    assert step_of_row(item["actions"]).tolist() == step_of_row(item["obs"]["state"]).tolist() == [2, 3, 4]
    assert step_of_frame(item["obs"]["wrist_image"]).tolist() == [2, 3, 4]
    assert step_of_frame(item["next_obs"]["external_image"]).tolist() == [3, 4, 5]
    parts = [SequenceDataset(str(tmp_path / "out.hdf5"), keys, ["actions"], filter_by_attribute=k).demos for k in ("train", "valid")]
    assert sorted(parts[0] + parts[1]) == dataset.demos and min(map(len, parts)) > 0


def test_export_then_import_gives_back_the_episodes(tmp_path):
    spec = fake_spec()
    store = EpisodeStore.create(tmp_path / "s", spec)
    for seed, success in [(4, 1.0), (9, 0.0), (11, float("nan"))]:
        store.append(fake_episode(spec, 6, seed, success=success, kind="rollout"))
    export_robomimic(store, tmp_path / "out.hdf5")
    run_robomimic(
        path=tmp_path / "out.hdf5",
        output_dir=tmp_path / "back",
        cameras=["external", "wrist"],
        state_keys=["state"],
        environment_state_keys=["environment_state"],
        action_names=spec.action_names,
        action_kind="absolute",
    )
    back = EpisodeStore.open(tmp_path / "back")
    for i in range(3):
        one, two = store.episode(i), back.episode(i)
        for camera in one.frames:
            np.testing.assert_array_equal(one.frames[camera], two.frames[camera])
        np.testing.assert_array_equal(one.state, two.state)
        np.testing.assert_array_equal(one.environment_state, two.environment_state)
        np.testing.assert_allclose(one.action, two.action, atol=1e-7)
        np.testing.assert_array_equal(one.controller, two.controller)
        assert (one.task, one.source.seed, one.judged_by, one.source.kind) == (two.task, two.source.seed, two.judged_by, two.source.kind)
        assert one.success == two.success or np.isnan([one.success, two.success]).all()
