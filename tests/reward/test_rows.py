import numpy as np
import pytest

from robowm.data.sidecar import write_sidecar
from robowm.errors import UserError
from robowm.reward.rows import LabelledStore, RowSampler, as_labelled, near_change
from tests.reward.stores import make_store


def sampler(path, **options):
    options = {"cameras": ["external"], "rows": 2, "batch_size": 16, "seed": 3, **options}
    return RowSampler([LabelledStore(path)], **options)


def test_the_label_belongs_to_the_last_row_of_the_window(tmp_path):
    make_store(tmp_path / "s", range(6))
    clips = sampler(tmp_path / "s").batch(0)
    assert clips.frames["external"].shape == (16, 2, 16, 16, 3)
    np.testing.assert_array_equal(clips.reward[:, 0], clips.state[:, -1, 0] == 12)
    np.testing.assert_array_equal(clips.action[:, 0, 0], clips.state[:, -1, 0])


def test_batches_are_balanced_and_a_function_of_the_step(tmp_path):
    make_store(tmp_path / "s", range(6))
    one, other = sampler(tmp_path / "s"), sampler(tmp_path / "s")
    other.batch(5)
    np.testing.assert_array_equal(one.draw(7), other.draw(7))
    assert not np.array_equal(one.draw(7), one.draw(8))
    assert one.batch(1).reward.sum() == 8


def test_half_of_the_negatives_lie_near_a_change(tmp_path):
    make_store(tmp_path / "s", [0] + [1 + 2 * i for i in range(30)])
    found = sampler(tmp_path / "s", batch_size=400)
    negatives = found.draw(0)[200:]
    share = (negatives < 12).mean()  # episode 0 alone has a change; uniform draws would give 2 %
    assert 0.45 < share < 0.6


def test_near_change_stays_inside_its_episode():
    truth = np.array([0, 0, 0, 1, 1, 0, 0], bool)
    episode = np.array([0, 0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(near_change(truth, episode, 1), [0, 0, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(near_change(truth, episode, 2), [0, 1, 1, 1, 1, 1, 1])


def test_one_sided_stores_are_refused(tmp_path):
    make_store(tmp_path / "s", [1, 3])
    with pytest.raises(UserError, match="goal holds in 0 of 24 steps"):
        sampler(tmp_path / "s")


def test_imagined_episodes_need_labels(tmp_path):
    store = make_store(tmp_path / "s", range(4), kind="imagined")
    with pytest.raises(UserError, match="4 imagined episodes"):
        sampler(tmp_path / "s")
    labels = np.zeros(48, np.float32)
    labels[5] = 1
    write_sidecar(store, "real", {"success": labels})
    found = RowSampler([LabelledStore(tmp_path / "s", "real")], cameras=["wrist"], rows=1, batch_size=4, seed=0)
    assert list(np.flatnonzero(found.truth)) == [5]
    write_sidecar(store, "other", {"weight": labels})
    with pytest.raises(UserError, match="no 'success'"):
        RowSampler([LabelledStore(tmp_path / "s", "other")], cameras=["wrist"], rows=1, batch_size=4, seed=0)


def test_stores_may_be_paths_or_mappings(tmp_path):
    assert as_labelled(["a", {"path": "b", "labels": "c"}]) == [LabelledStore("a"), LabelledStore("b", "c")]
    with pytest.raises(UserError, match="no store"):
        as_labelled([])
