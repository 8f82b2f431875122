"""Diffusion Policy's zarr 2 replay buffers."""

import json
import shutil

import numpy as np
import pytest
import zarr

from robowm.data.diffusion_policy import run_diffusion_policy
from robowm.data.fake import CORNERS, fake_frames, step_of_frame, step_of_row
from robowm.data.store import EpisodeStore
from robowm.errors import UserError

ENDS = [5, 12, 15]


@pytest.fixture
def buffer(tmp_path):
    path = tmp_path / "pusht.zarr"
    root = zarr.open_group(path, mode="w", zarr_format=2)
    times = np.concatenate([np.arange(b - a) for a, b in zip([0, *ENDS], ENDS, strict=False)])
    rows = {
        "img": fake_frames((24, 24), times, 0).astype(np.float32),
        "state": np.stack([times / 100, times, times * 2, times * 3, times * 4], 1).astype(np.float32),
        "action": np.stack([times / 100, times], 1).astype(np.float64),
    }
    data = root.create_group("data")
    for key, values in rows.items():
        data.create_array(key, data=values, chunks=(7, *values.shape[1:]))
    root.create_group("meta").create_array("episode_ends", data=np.array(ENDS))
    return path


def test_a_zarr_2_buffer_comes_in_row_by_row(buffer, tmp_path):
    assert (buffer / ".zgroup").exists()
    run_diffusion_policy(path=buffer, output_dir=tmp_path / "s", fps=10, cameras={"external": "img"}, state_columns=[0, 1], success=1.0)
    store = EpisodeStore.open(tmp_path / "s")
    assert store.lengths.tolist() == [4, 6, 2] and store.spec.state_names == ["state.0", "state.1"] and store.meta(0).task == "pusht"
    for i in range(3):
        episode = store.episode(i)
        steps = list(range(len(episode) + 1))
        assert step_of_frame(episode.frames["external"]).tolist() == step_of_row(episode.state).tolist() == steps
        assert step_of_row(episode.action).tolist() == steps[:-1] and episode.success == 1
        assert (episode.frames["external"][:, 0, 0] == CORNERS[0]).all()
    before = store.fingerprint()
    run_diffusion_policy(path=buffer, output_dir=tmp_path / "s", fps=10, cameras={"external": "img"}, state_columns=[0, 1], success=1.0)
    assert EpisodeStore.open(tmp_path / "s").fingerprint() == before


def test_a_zip_of_the_buffer_gives_the_same_store(buffer, tmp_path):
    shutil.make_archive(str(tmp_path / "pusht.zarr"), "zip", buffer)
    for path, out in ((buffer, "a"), (tmp_path / "pusht.zarr.zip", "b")):
        run_diffusion_policy(path=path, output_dir=tmp_path / out, fps=10, cameras=["img"])
    assert EpisodeStore.open(tmp_path / "a").fingerprint() == EpisodeStore.open(tmp_path / "b").fingerprint()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cameras": ["image"]}, "no camera 'image'; did you mean 'img'"),
        ({"state_keys": ["stat"]}, r"no data/stat; did you mean 'state'"),
        ({"action_names": ["x"]}, "2 dimensions, action_names gives 1"),
        ({"state_columns": [7]}, "columns 0 to 4"),
        ({"action_kind": "velocity"}, "must be 'absolute' or 'delta'"),
    ],
)
def test_wrong_keys_are_named(buffer, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        run_diffusion_policy(path=buffer, output_dir=tmp_path / "s", **{"fps": 10, "cameras": ["img"], **changes})


def test_what_is_no_buffer_is_named(buffer, tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        run_diffusion_policy(path=tmp_path / "none", output_dir=tmp_path / "s", fps=10, cameras=[])
    zarr.open_group(tmp_path / "other", mode="w").create_group("episodes")
    with pytest.raises(UserError, match="no 'data' but episodes"):
        run_diffusion_policy(path=tmp_path / "other", output_dir=tmp_path / "s", fps=10, cameras=[])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="not a zarr group"):
        run_diffusion_policy(path=tmp_path / "empty", output_dir=tmp_path / "s", fps=10, cameras=[])
    root = zarr.open_group(buffer, mode="a")
    root["meta/episode_ends"][-1] = 99
    with pytest.raises(UserError, match="goes to 99 over 15 rows"):
        run_diffusion_policy(path=buffer, output_dir=tmp_path / "s", fps=10, cameras=["img"])
    assert json.loads((buffer / ".zgroup").read_text()) == {"zarr_format": 2} and not (buffer / "zarr.json").exists()
