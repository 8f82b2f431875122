import pytest
import torch

from robowm.errors import UserError
from robowm.nn.blocks import Attention, LevelEmbedding, ResBlock
from robowm.nn.shape import VideoShape
from robowm.nn.unet import VideoUNet, composite

SHAPE = VideoShape(views=2, height=16, width=16, context=3, frames=4, state_dim=5, action_dim=3)


def inputs(batch=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    video = draw(batch, 7, 2, 3, 16, 16).tanh()
    return video, torch.rand(batch, 7, generator=generator), draw(batch, 3, 5), draw(batch, 4, 3)


def small(**settings):
    torch.manual_seed(0)
    return VideoUNet(shape=SHAPE, **{"channels": [16, 16], "condition": 32, **settings})


@pytest.mark.parametrize("settings", [{}, {"attention": True, "depth": 2}, {"patch": 4, "channels": [16, 32]}])
def test_shapes_and_gradients_reach_every_parameter(settings):
    net = small(**settings)
    with torch.no_grad():
        for parameter in net.parameters():  # branches start at zero: move them off it
            parameter.add_(0.02 * torch.randn_like(parameter))
    video, state = net(*inputs())
    assert video.shape == (2, 4, 2, 3, 16, 16) and state.shape == (2, 4, 5)
    (video.square().mean() + state.square().mean()).backward()
    unused = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert not unused


def test_every_input_matters():
    net = small()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    given = inputs()
    base = torch.cat([x.flatten() for x in net(*given)])
    for i, name in enumerate(("video", "level", "state", "action")):
        changed = [x.flip(0) if j == i else x for j, x in enumerate(given)]
        assert not torch.allclose(torch.cat([x.flatten() for x in net(*changed)]), base, atol=1e-5), name


def test_composite_copies_where_its_weight_is_one():
    last, first = torch.rand(1, 2, 3, 4, 4), torch.rand(1, 2, 3, 4, 4)
    painted = torch.zeros(1, 2, 2, 6, 4, 4)
    painted[:, 0, :, 4] = 50  # frame 0: the last context frame
    painted[:, 1, :, 5] = 50  # frame 1: the first one
    mixed = composite(painted, last, first)
    torch.testing.assert_close(mixed[:, 0], last)
    torch.testing.assert_close(mixed[:, 1], first)


def test_residual_blocks_and_attention_start_as_the_identity():
    x, condition = torch.randn(2, 16, 4, 4), torch.randn(2, 8)
    assert torch.equal(ResBlock(16, 16, 8)(x, condition), x)
    assert torch.equal(Attention(16)(x), x)


def test_level_embedding_tells_nearby_levels_apart():
    features = LevelEmbedding(16)(torch.tensor([[0.0], [0.02], [0.5], [1.0]]))
    assert features.shape == (4, 16)
    assert float(torch.pdist(features).min()) > 0.1


def test_frames_that_do_not_divide_are_refused():
    shape = VideoShape(views=1, height=18, width=16, context=1, frames=1, state_dim=1, action_dim=1)
    with pytest.raises(UserError, match="18x16 do not divide by 8"):
        VideoUNet(shape=shape, channels=[16, 16, 16])
