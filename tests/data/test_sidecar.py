import numpy as np
import pytest

from robowm.data.fake import fake_episode, fake_store
from robowm.data.sidecar import read_sidecar, write_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError


def test_a_sidecar_comes_back(tmp_path):
    store = fake_store(tmp_path / "s", [3, 5])
    arrays = {"weight": np.arange(8, dtype=np.float32), "label": np.arange(16, dtype=np.int64).reshape(8, 2), "on": np.arange(8) > 3}
    write_sidecar(store, "credit", arrays)
    back = read_sidecar(EpisodeStore.open(store.path), "credit")
    assert back.keys() == arrays.keys()
    for key, array in arrays.items():
        assert back[key].dtype == array.dtype
        np.testing.assert_array_equal(back[key], array)


def test_a_sidecar_of_other_data_is_refused(tmp_path):
    store = fake_store(tmp_path / "s", [3, 5])
    write_sidecar(store, "credit", {"weight": np.ones(8, np.float32)})
    store.append(fake_episode(store.spec, 2))
    with pytest.raises(UserError, match="compute it again"):
        read_sidecar(store, "credit")


@pytest.mark.parametrize(
    ("array", "message"),
    [(np.ones(7, np.float32), "7 rows, .* has 8 steps"), (np.array([1.0] * 7 + [np.nan]), "holds nan")],
)
def test_wrong_rows_and_nan_are_refused(tmp_path, array, message):
    store = fake_store(tmp_path / "s", [3, 5])
    with pytest.raises(UserError, match=message):
        write_sidecar(store, "credit", {"weight": array})
    with pytest.raises(UserError, match="no sidecar 'credit'; known: none"):
        read_sidecar(store, "credit")


def test_a_damaged_sidecar_is_named(tmp_path):
    store = fake_store(tmp_path / "s", [3])
    path = write_sidecar(store, "credit", {"weight": np.ones(3, np.float32)})
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(UserError, match=r"credit.safetensors is damaged"):
        read_sidecar(store, "credit")
    with pytest.raises(UserError, match="did you mean 'credit'"):
        read_sidecar(store, "credi")
