import numpy as np
import pytest
import torch

from robowm.data.sampler import ClipReader
from robowm.errors import UserError
from robowm.protocols import Reward
from robowm.reward.success import SuccessClassifier, SuccessNet, held_probability
from tests.reward.stores import episode, make_store

CAMERAS = {"external": (16, 16), "wrist": (16, 16)}


def classifier(rows=2, consecutive=2, threshold=0.5):
    torch.manual_seed(0)
    return SuccessClassifier("abc", SuccessNet(CAMERAS, rows, 8).eval(), threshold, consecutive)


def test_held_probability_is_the_least_of_each_window():
    np.testing.assert_array_equal(held_probability(np.array([0.1, 0.9, 0.8, 0.95]), 2), [0.1, 0.8, 0.8])
    assert len(held_probability(np.array([0.9]), 2)) == 0


class Scripted(SuccessClassifier):
    """Answers with given probabilities."""

    def probabilities(self, frames):
        return np.array(frames["p"], np.float32)


@pytest.mark.parametrize(
    "probabilities, success, confirmed, score",
    [
        ([0, 0, 0.9, 0.9, 0.2], True, 3, 0.9),
        ([0, 0.9, 0.2, 0.9, 0.2], False, None, 0.2),  # never two in a row
        ([0.9, 0.9, 0, 0, 0], False, None, 0.0),  # the reset row does not count
        ([0, 0.9, 0.9, 0.95, 0.95], True, 2, 0.95),
    ],
)
def test_an_episode_succeeds_after_consecutive_rows(probabilities, success, confirmed, score):
    verdict = Scripted("abc", None, 0.8, 2).judge({"p": probabilities})
    assert (verdict.success, verdict.confirmed) == (success, confirmed) and verdict.score == pytest.approx(score)


def test_a_row_sees_itself_and_the_rows_before_it_alone():
    found = classifier()
    frames = {camera: rows.copy() for camera, rows in episode(2).frames.items()}
    before = found.probabilities(frames)
    frames["wrist"][6] = 255
    after = found.probabilities(frames)
    np.testing.assert_array_equal(np.flatnonzero(np.abs(before - after) > 1e-6), [6, 7])


def test_as_a_reward_it_scores_the_row_after_each_step(tmp_path):
    make_store(tmp_path / "s", range(3))
    from robowm.data.store import EpisodeStore

    reader = ClipReader([EpisodeStore.open(tmp_path / "s")], list(CAMERAS))
    clip = reader.read(np.array([0, 2]), np.array([0, 0]), range(13), range(12))
    found = classifier()
    score = found(clip)
    assert isinstance(found, Reward) and score.total.shape == (2, 12) and torch.equal(score.total, score.terms["success"])
    expected = found.probabilities(EpisodeStore.open(tmp_path / "s").episode(2).frames)
    np.testing.assert_allclose(score.total[1], expected[1:], rtol=1e-5)


def test_missing_cameras_and_wrong_sizes_are_named():
    frames = episode(0).frames
    with pytest.raises(UserError, match="camera 'wrist'"):
        classifier().probabilities({"external": frames["external"]})
    with pytest.raises(UserError, match=r"external frames of \(16, 16\), found \(8, 8\)"):
        classifier().probabilities({**frames, "external": frames["external"][:, ::2, ::2]})


@pytest.mark.parametrize("size", [(16, 16), (32, 32), (84, 84), (96, 128)])
def test_the_network_takes_any_picture_size(size):
    net = SuccessNet({"external": size}, rows=1, width=8)
    assert net({"external": torch.rand(2, 3, *size)}).shape == (2,)
