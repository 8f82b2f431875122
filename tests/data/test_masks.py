"""Masks lie in a store like any camera, and nothing looks at them that was not told to."""

import h5py
import numpy as np
import pytest

from robowm.data.check import check
from robowm.data.fake import fake_spec
from robowm.data.lerobot import export_lerobot, run_lerobot
from robowm.data.robomimic import export_robomimic
from robowm.data.shares import StoreShare
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.reward.train import run as train_success
from robowm.world_model.losses import TeacherForcing
from robowm.world_model.model import Design
from robowm.world_model.train import prepare
from tests.fakes import masked_store

NODE = {"_target_": "robowm.nn.unet.VideoUNet", "channels": [8, 8], "condition": 8, "patch": 4}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return masked_store(tmp_path_factory.mktemp("masked") / "store", [6, 8, 7])


def test_pictures_are_all_cameras_but_masks(store):
    assert list(store.spec.cameras) == ["external", "wrist", "external_mask", "wrist_mask"]
    assert store.spec.pictures() == {"external": (32, 32), "wrist": (32, 32)}
    assert store.spec.masks(["wrist"], "here") == ["wrist_mask"]
    assert fake_spec().pictures() == fake_spec().cameras
    with pytest.raises(UserError, match=r"here has no masks \(external_mask\).*env.masks=true"):
        fake_spec().masks(["external"], "here")


def test_a_mask_comes_back_as_it_was_stored(store):
    episode = EpisodeStore.open(store.path).episode(1)
    assert episode.frames["external_mask"].shape == (9, 32, 32, 3) and set(np.unique(episode.frames["external_mask"])) == {0, 255}


def test_a_world_model_of_all_cameras_has_none(store):
    _, net = prepare([StoreShare(store.path)], Design(network=NODE), 2, 0, TeacherForcing())
    assert list(net.layout.cameras) == ["external", "wrist"]
    _, named = prepare([StoreShare(store.path)], Design(network=NODE, pinned=(), cameras=("wrist_mask",)), 2, 0, TeacherForcing())
    assert list(named.layout.cameras) == ["wrist_mask"], "who names one gets it"


def test_a_success_classifier_of_all_cameras_has_none(store, tmp_path, monkeypatch):
    seen = {}

    def stop(learner, **rest):
        seen.update(learner.model.cameras)
        raise KeyboardInterrupt

    monkeypatch.setattr("robowm.reward.train.fit", stop)
    monkeypatch.setattr("robowm.reward.train.RowSampler", lambda *_, **__: type("Sampler", (), {"batch": None}))
    with pytest.raises(KeyboardInterrupt):
        other = masked_store(tmp_path / "other", [6], first_seed=60_000)
        stores = {"stores": [store.path], "validation_stores": [other.path]}
        train_success(**stores, output_dir=tmp_path / "success", task="fake/move", steps=1)
    assert list(seen) == ["external", "wrist"]


def test_exports_leave_them_out(store, tmp_path):
    export_lerobot(store, tmp_path / "set", use_videos=False)
    run_lerobot(root=tmp_path / "set", output_dir=tmp_path / "back")
    back = EpisodeStore.open(tmp_path / "back")
    assert list(back.spec.cameras) == ["external", "wrist"]
    assert np.array_equal(back.episode(0).frames["wrist"], store.episode(0).frames["wrist"])
    export_robomimic(store, tmp_path / "demo.hdf5")
    with h5py.File(tmp_path / "demo.hdf5") as file:
        assert {key for key in file["data/demo_0/obs"] if "image" in key} == {"external_image", "wrist_image"}


def test_an_empty_mask_is_no_broken_camera(tmp_path):
    store = masked_store(tmp_path / "store", [12, 15])
    assert not [finding for finding in check(store) if "mask" in str(finding)]
