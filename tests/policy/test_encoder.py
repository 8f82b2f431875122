import pytest
import torch

from robowm.policy.denoiser import ChunkDenoiser
from robowm.policy.encoder import ImageEncoder, random_shift
from robowm.policy.lerobot_diffusion import context
from tests.policy.helpers import CAMERAS, SMALL, make_policy


@pytest.mark.parametrize("size", [(32, 32), (48, 64), (96, 96)])
def test_each_camera_has_its_own_features(size):
    encoder = ImageEncoder(2, 2, size, width=8, features=6)
    images = torch.rand(3, 2, 2, 3, *size)
    features = encoder(images)
    assert features.shape == (3, 12)
    changed = images.clone()
    changed[:, :, 1] = 0
    assert torch.equal(encoder(changed)[:, :6], features[:, :6]) and not torch.equal(encoder(changed)[:, 6:], features[:, 6:])


def test_features_tell_where_things_are():
    encoder = ImageEncoder(1, 1, (32, 32), width=8, features=6)
    left, right = torch.zeros(1, 1, 1, 3, 32, 32), torch.zeros(1, 1, 1, 3, 32, 32)
    left[..., 8:12, 4:8] = right[..., 8:12, 20:24] = 1
    assert (encoder(left) - encoder(right)).abs().max() > 0.1


def test_pictures_too_small_for_the_encoder_are_refused():
    with pytest.raises(ValueError, match="8 x 32 pixels are too small"):
        ImageEncoder(1, 1, (8, 32), width=8, features=6)


def test_a_random_shift_moves_all_rows_of_a_clip_alike_and_by_no_more_than_asked():
    row, column = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    images = torch.stack([row, column, torch.zeros(32, 32)]).expand(40, 2, 2, 3, 32, 32)
    torch.manual_seed(0)
    shifted = random_shift(images, 1 / 16)
    assert torch.equal(shifted[:, 0], shifted[:, 1])
    inside = (shifted - images)[:, 0, :, :2, 2:-2, 2:-2]  # [clip, camera, direction, h, w]
    moves = inside[..., 0, 0]
    assert torch.equal(inside, moves[..., None, None].expand_as(inside))
    assert set(moves.flatten().tolist()) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert not torch.equal(moves[:, 0], moves[:, 1])  # each camera its own
    assert random_shift(images, 0.0) is images


def test_pictures_are_shifted_in_training_alone():
    model = make_policy(SMALL | {"shift": 1 / 16}).model
    pictures = {f"observation.images.{camera}": torch.rand(4, 2, 3, 32, 32) for camera in CAMERAS}
    batch = {"observation.state": torch.zeros(4, 2, 5), **pictures}
    torch.manual_seed(0)
    still = [context(model.eval(), batch) for _ in range(2)]
    assert torch.equal(*still)
    moved = [context(model.train(), batch) for _ in range(2)]
    assert not torch.equal(*moved)


def test_the_denoiser_uses_chunk_time_and_context():
    denoiser = ChunkDenoiser(horizon=16, action_dim=5, context_dim=3, width=32, blocks=2)
    for block in denoiser.blocks:
        torch.nn.init.normal_(block.second.weight)
    x, t, context = torch.randn(2, 16, 5), torch.tensor([5, 50]), torch.randn(2, 3)
    base = denoiser(x, t, global_cond=context)
    assert base.shape == x.shape
    for other in (denoiser(x + 1, t, context), denoiser(x, t + 1, context), denoiser(x, t, context + 1)):
        assert not torch.allclose(base, other)
