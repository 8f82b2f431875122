import pytest
import torch

from robowm.errors import UserError
from robowm.train.checkpoint import config_differences, load_newest, save_checkpoint


def save(folder, step):
    return save_checkpoint(folder, step, {"a": torch.full((3,), float(step)), "count": torch.tensor(step)}, {"config": {}})


def test_round_trip_keeps_the_newest_two(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000002", "00000003", "last"]
    found = load_newest(tmp_path)
    assert found.step == 3 and torch.equal(found.tensors["a"], torch.full((3,), 3.0)) and found.tensors["count"] == 3


def test_nothing_there_is_none(tmp_path):
    assert load_newest(tmp_path / "absent") is None


def test_half_a_checkpoint_under_a_temporary_name_is_never_read(tmp_path):
    save(tmp_path, 1)
    partial = tmp_path / ".00000002.77"
    partial.mkdir()
    (partial / "state.safetensors").write_bytes(b"half")
    assert load_newest(tmp_path).step == 1


@pytest.mark.parametrize("harm", ["truncate", "delete", "no meta"])
def test_falls_back_one_when_the_last_is_damaged(tmp_path, harm):
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    if harm == "truncate":
        (path / "state.safetensors").write_bytes((path / "state.safetensors").read_bytes()[:-4])
    elif harm == "delete":
        (path / "state.safetensors").unlink()
    else:
        (path / "meta.json").write_text("{")
    with pytest.warns(UserWarning, match="00000002 is damaged"):
        assert load_newest(tmp_path).step == 1


def test_says_so_when_every_one_is_damaged(tmp_path):
    (save(tmp_path, 1) / "meta.json").unlink()
    with pytest.warns(UserWarning), pytest.raises(UserError, match=r"no checkpoint under .* can be read"):
        load_newest(tmp_path)


def test_a_failed_write_leaves_the_old_checkpoint_and_no_litter(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("robowm.train.checkpoint.save_file", full)
    with pytest.raises(UserError, match="No space left on device"):
        save(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001", "last"]


def test_tied_weights_are_saved(tmp_path):
    shared = torch.arange(4.0)
    save_checkpoint(tmp_path, 1, {"a": shared, "b": shared.view(2, 2)}, {"config": {}})
    assert torch.equal(load_newest(tmp_path).tensors["b"].flatten(), shared)


def test_config_differences_name_leaves():
    saved, wanted = {"a": {"b": 1, "c": (1, 2)}, "d": None}, {"a": {"b": 2, "c": [1, 2]}, "e": 5}
    assert config_differences(saved, wanted) == ["a.b: 1 -> 2", "d: None -> (none)", "e: (none) -> 5"]
