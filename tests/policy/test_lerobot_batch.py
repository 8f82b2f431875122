import numpy as np
import pytest
import torch

from robowm.data.fake import CORNERS, fake_episode, fake_spec
from robowm.data.normalize import Normalizer
from robowm.errors import UserError
from robowm.policy.lerobot_batch import Inputs, Normalizers, action_batch, features, observation_batch
from tests.policy.helpers import make_policy


def test_simulator_truth_together_with_cameras_is_refused():
    with pytest.raises(UserError, match="must not see environment_state"):
        Inputs(("wrist",), True)
    with pytest.raises(UserError, match="found neither"):
        Inputs((), False)


def test_a_camera_the_data_lack_is_named():
    with pytest.raises(UserError, match="'wrst'; did you mean 'wrist'"):
        features(fake_spec(), Inputs(("wrst",), False))
    with pytest.raises(UserError, match="do not hold"):
        features(fake_spec(environment_state=False), Inputs((), True))


def test_pictures_reach_the_policy_upright_and_in_rgb():
    policy = make_policy()
    episode = fake_episode(fake_spec(), 3)
    frames = {camera: torch.from_numpy(rows[None, :2]) for camera, rows in episode.frames.items()}
    batch = observation_batch(frames, torch.from_numpy(episode.state[None, :2]), None, ["move"], policy.normalizers, policy.inputs)
    pixels = batch["observation.images.wrist"]
    assert pixels.shape == (1, 2, 3, 32, 32) and pixels.min() >= -1 and pixels.max() <= 1
    for color, (row, column) in zip(CORNERS, ((0, 0), (0, -1), (-1, 0), (-1, -1)), strict=True):
        np.testing.assert_allclose((pixels[0, 1, :, row, column] + 1) / 2 * 255, color, atol=1e-4)


def test_padding_is_flagged_and_replaced_before_it_is_normalised():
    normalizers = Normalizers({"action": Normalizer(np.zeros(1), np.full(1, 10.0))})
    action = torch.tensor([[[0.0], [10.0], [1e9]]])
    batch = action_batch(action, torch.tensor([[True, True, False]]), normalizers)
    assert batch["action"].flatten().tolist() == [-1.0, 1.0, 1.0]
    assert batch["action_is_pad"].tolist() == [[False, False, True]]


def test_normalisers_survive_json_and_a_constant_dimension():
    with pytest.warns(UserWarning, match="nearly constant"):
        fitted = Normalizers.fit({"action": [np.array([[1.0, 5.0], [3.0, 5.0]], np.float32)]}, {"action": ["x", "grip"]})
    again = Normalizers.from_json(fitted.to_json())
    x = torch.tensor([[2.0, 5.0], [1.0, 5.0]])
    assert again.by_key["action"].normalize(x).tolist() == [[0.0, 0.0], [-1.0, 0.0]]
    assert torch.equal(again.by_key["action"].unnormalize(again.by_key["action"].normalize(x)), x)
