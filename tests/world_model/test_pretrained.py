import json

import pytest
import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file

from robowm.artefacts import read_artefact
from robowm.errors import UserError
from robowm.nn.shape import VideoShape
from robowm.train.weights import WEIGHTS
from robowm.world_model.predict import KIND, load_world_model
from robowm.world_model.pretrained import WanVideo
from tests.world_model.conftest import train

CONFIG = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "in_channels": 4,
    "out_channels": 4,
    "text_dim": 16,
    "freq_dim": 16,
    "ffn_dim": 32,
    "num_layers": 2,
    "rope_max_seq_len": 64,
}
SHAPE = VideoShape(views=2, height=32, width=32, context=3, frames=4, state_dim=5, action_dim=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny random model of the real class, saved as diffusers saves pretrained ones."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("hub") / "wan"
    WanTransformer3DModel(**CONFIG).save_pretrained(path / "transformer")
    return path


def inputs(batch=2):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.rand(*shape, generator=generator) * 2 - 1  # noqa: E731
    return draw(batch, 7, 2, 3, 32, 32), torch.rand(batch, 7, generator=generator), draw(batch, 3, 5), draw(batch, 4, 5)


def test_pretrained_weights_are_loaded_and_everything_is_trained(folder):
    net = WanVideo(shape=SHAPE, pretrained=folder, subfolder="transformer", patch=4)
    source = WanTransformer3DModel.from_pretrained(folder / "transformer").state_dict()
    assert all(torch.equal(value, source[name]) for name, value in net.transformer.state_dict().items())
    given = inputs()
    video, state = net(*given)
    assert video.shape == (2, 4, 2, 3, 32, 32) and state.shape == (2, 4, 5)
    assert torch.equal(video, given[0][:, 2:3].expand_as(video)), "an untrained projection changes nothing: the last row is kept"
    with torch.no_grad():
        net.decode.weight.add_(0.05 * torch.randn_like(net.decode.weight))
        net.state.fix[-1].weight.add_(0.05 * torch.randn_like(net.state.fix[-1].weight))
    video, state = net(*given)
    (video.square().mean() + state.square().mean()).backward()
    assert not [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]


def test_views_levels_and_actions_reach_the_prediction(folder):
    net = WanVideo(shape=SHAPE, pretrained=folder, subfolder="transformer", patch=4)
    with torch.no_grad():
        net.decode.weight.add_(0.2 * torch.randn(net.decode.weight.shape, generator=torch.Generator().manual_seed(1)))
        video, level, state, action = inputs()
        base = net(video, level, state, action)[0]
        swapped = net(video.flip(2), level, state, action)[0]
        assert not torch.allclose(swapped, base, atol=1e-4)
        for changed in (
            (video, level.flip(0), state, action),
            (video, level, state.flip(0), action),
            (video, level, state, action.flip(0)),
        ):
            assert not torch.allclose(net(*changed)[0], base, atol=1e-6)


def test_trains_through_the_same_command_and_reloads_without_the_folder(folder, store, tmp_path):
    node = {
        "_target_": "robowm.world_model.pretrained.WanVideo",
        "pretrained": str(folder),
        "subfolder": "transformer",
        "patch": 4,
        "checkpointing": True,
    }
    train(store, tmp_path / "wm", steps=2, world_model={"network": node, "sampling_steps": 2}, log_every=1, save_every=2)
    record = read_artefact(tmp_path / "wm", KIND)
    stored = json.loads(json.dumps(record["model"]["design"]["network"]))
    assert "pretrained" not in stored and stored["config"]["num_layers"] == 2
    loaded = load_world_model(tmp_path / "wm", device="cpu")
    weights = load_file(tmp_path / "wm" / WEIGHTS)
    assert all(torch.equal(value, weights[name]) for name, value in loaded.net.state_dict().items())


def test_wrong_settings_are_one_line(folder, tmp_path):
    with pytest.raises(UserError, match="exactly one of pretrained"):
        WanVideo(shape=SHAPE)
    with pytest.raises(UserError, match=r"no WanTransformer3DModel at .*nothing"):
        WanVideo(shape=SHAPE, pretrained=tmp_path / "nothing")
    with pytest.raises(UserError, match="32x32 do not divide by 24"):
        WanVideo(shape=SHAPE, config=CONFIG, patch=12)
