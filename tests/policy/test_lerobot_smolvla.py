"""SmolVLA is lerobot's: same loss, same tokens; sentences matter, pretrained weights are taken over whole or not at all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lerobot.policies.smolvla import modeling_smolvla
from safetensors.torch import load_file, save_file

from robowm.data.fake import fake_spec
from robowm.data.normalize import Normalizer
from robowm.errors import UserError
from robowm.policy import lerobot_smolvla
from robowm.policy.lerobot import build, load_policy
from robowm.policy.lerobot_batch import action_batch
from robowm.policy.train import run
from robowm.train.log import read_log
from tests.policy.helpers import CAMERAS, OPTIM, VLA, ReplayEnv, generators, make_policy, make_store


@pytest.fixture
def node(vlm):
    return VLA | {"vlm_model_name": str(vlm)}


def one_batch(policy, n=4):
    obs = ReplayEnv(n).reset(range(n))
    batch = policy.batch(policy.remember(obs, None), np.arange(n))
    valid = torch.arange(16) < torch.arange(n)[:, None] + 12
    return batch | action_batch(torch.randn(n, 16, 5), valid, policy.normalizers)


def test_the_loss_is_lerobots_own(node):
    policy = make_policy(node)
    batch = one_batch(policy)
    ours, terms = lerobot_smolvla.errors(policy.model, batch, torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    noise, uniform = torch.randn(4, 16, 8, generator=generator), torch.rand(4, generator=generator)
    tokens, mask = lerobot_smolvla._tokens(policy.model, batch["task"], torch.device("cpu"))
    pictures = {f"observation.images.{c}": (batch[f"observation.images.{c}"] + 1) / 2 for c in CAMERAS}
    theirs = batch | pictures | {"observation.language.tokens": tokens, "observation.language.attention_mask": mask}
    loss, _ = policy.model.forward(theirs, noise, 0.001 + 0.999 * uniform ** (1 / 1.5), reduction="none")
    valid = ~batch["action_is_pad"]
    torch.testing.assert_close((ours * valid).sum(1) / valid.sum(1), loss)
    assert terms == {} and ours.shape == (4, 16)


def test_times_are_distributed_as_lerobot_draws_them(node, monkeypatch):
    policy, seen = make_policy(node), []
    monkeypatch.setattr(lerobot_smolvla, "_inputs", lambda policy, batch: ())
    monkeypatch.setattr(policy.model.model, "forward", lambda clean, noise, t: seen.append(t) or torch.zeros_like(clean))
    lerobot_smolvla.errors(policy.model, {"action": torch.zeros(20000, 16, 5)}, torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    theirs = policy.model.model.sample_time(20000, "cpu")
    levels = torch.linspace(0.05, 0.95, 10)
    torch.testing.assert_close(seen[0].quantile(levels), theirs.quantile(levels), atol=0.015, rtol=0)
    assert seen[0].min() >= 0.001 and seen[0].max() <= 1


def test_each_episode_is_asked_for_its_own_sentence_whatever_the_others_are(node):
    policy = make_policy(node)
    obs = ReplayEnv(2).reset([1, 1])

    def act(*sentences):
        return policy.act(replace(obs, task=sentences), None, generators([5, 5]))[0]

    same, mixed, long = act("move", "move"), act("move", "insert the cube"), act("pick up the cube", "insert the cube")
    np.testing.assert_array_equal(same[0], same[1])
    np.testing.assert_array_equal(mixed[0], same[0])
    np.testing.assert_array_equal(mixed[1], long[1])
    assert np.abs(mixed[0] - mixed[1]).max() > 1e-6 and np.abs(long[0] - long[1]).max() > 1e-6


def test_sentences_become_the_tokens_of_lerobots_preprocessor(node):
    policy = make_policy(node)
    tokens, mask = lerobot_smolvla._tokens(policy.model, ["move the cube", "insert"], torch.device("cpu"))
    tokenizer = policy.model.model.vlm_with_expert.processor.tokenizer
    assert tokenizer.convert_ids_to_tokens(tokens[0][mask[0]]) == ["move", "the", "cube"]
    assert mask.shape == (2, policy.model.config.tokenizer_max_length) and mask.dtype == torch.bool and mask.sum(1).tolist() == [3, 1]


@pytest.fixture
def checkpoint(node, tmp_path):
    """What lerobot would have on its hub: a SmolVLA for other cameras, numbers and chunks."""
    spec = fake_spec({"top": (48, 64)})
    torch.manual_seed(7)
    model, _ = build(node | {"cameras": ["top"], "chunk_size": 20, "num_steps": 3}, replace(spec, action_names=["a", "b"]))
    model.config.load_vlm_weights = True  # as published ones say
    model.save_pretrained(tmp_path / "published")
    return tmp_path / "published"


def train(store, output_dir, node, **options):
    settings = {"optim": replace(OPTIM, lr=1e-9), "batch_size": 4, "seed": 0, "device": "cpu", "precision": "fp32", "log_every": 1}
    return run(stores=[{"path": store}], policy=node, steps=options.pop("steps", 1), output_dir=output_dir, **settings | options)


def test_a_pretrained_checkpoint_is_gone_on_from_and_what_is_saved_stands_alone(node, checkpoint, tmp_path):
    store = make_store(tmp_path / "store").path
    short = {key: node[key] for key in ("type", "cameras", "n_action_steps", "vlm_model_name")} | {"load_vlm_weights": True}
    train(store, tmp_path / "tuned", short | {"pretrained_path": str(checkpoint)})
    published = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    policy = load_policy(tmp_path / "tuned", device="cpu", infer_width=16)
    for name, value in policy.model.state_dict().items():
        torch.testing.assert_close(value, published[name], atol=1e-7, rtol=0)
    config = policy.model.config
    assert config.chunk_size == 20 and config.num_steps == 3  # its own settings, but for those that were given
    assert config.n_action_steps == 8 and not config.load_vlm_weights and config.pretrained_path is None
    assert isinstance(policy.normalizers.by_key["action"], Normalizer)
    assert policy.act(ReplayEnv(2).reset([1, 2]), None, generators([1, 2]))[0].shape == (2, 8, 5)
    train(store, tmp_path / "more", None, init_from=tmp_path / "tuned", optim=replace(OPTIM, lr=1e-3), steps=2)
    assert np.isfinite([line["loss"] for line in read_log(tmp_path / "more" / "log.jsonl")]).all()


def test_half_a_checkpoint_another_type_and_none_at_all_are_refused(node, checkpoint, tmp_path, monkeypatch):
    def asked(path, **change):
        return build(node | {"pretrained_path": str(path)} | change, fake_spec())

    with pytest.raises(UserError, match=r"a policy of type 'smolvla', policy\.type is 'act'"):
        build({"type": "act", "cameras": CAMERAS, "pretrained_path": str(checkpoint)}, fake_spec())
    with pytest.raises(UserError, match="does not fit the policy"):
        asked(checkpoint, max_state_dim=6)
    weights = load_file(checkpoint / "model.safetensors")
    save_file({name: value for name, value in weights.items() if "action_out_proj" not in name}, checkpoint / "model.safetensors")
    with pytest.raises(UserError, match=r"lacks 2 weights of the policy, such as model\.action_out_proj\.bias"):
        asked(checkpoint)
    with pytest.raises(UserError, match=r"holds no model\.safetensors"):
        asked(tmp_path)

    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("robowm.policy.lerobot.snapshot_download", offline)
    with pytest.raises(UserError, match=r"pretrained_path=someone/something is no folder, and the hub does not give it: no network"):
        asked("someone/something")


def test_pretrained_weights_of_the_vision_language_model_are_kept_in_float32(node, vlm, tmp_path):
    from transformers import AutoConfig, AutoProcessor, SmolVLMForConditionalGeneration

    torch.manual_seed(11)
    pretrained = SmolVLMForConditionalGeneration(AutoConfig.from_pretrained(vlm)).to(torch.bfloat16)
    pretrained.save_pretrained(tmp_path)
    AutoProcessor.from_pretrained(vlm).save_pretrained(tmp_path)
    model, _ = build(node | {"vlm_model_name": str(tmp_path), "load_vlm_weights": True}, fake_spec())
    ours = model.model.vlm_with_expert.vlm.state_dict()
    assert all(torch.equal(ours[name], value.float()) for name, value in pretrained.state_dict().items())
    assert {p.dtype for p in model.parameters()} == {torch.float32} and not model.config.load_vlm_weights


def test_only_the_expert_and_the_projections_train_unless_asked_otherwise(node):
    frozen = build(node, fake_spec())[0].model.vlm_with_expert.vlm
    trained = build(node | {"train_expert_only": False}, fake_spec())[0].model.vlm_with_expert.vlm
    assert not any(p.requires_grad for p in frozen.parameters()) and any(p.requires_grad for p in trained.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cameras": [], "environment_state": True}, "SmolVLA looks at pictures"),
        ({"max_state_dim": 4}, "the state has 5 numbers, policy.max_state_dim=4; raise it"),
        ({"max_action_dim": 4}, "the action has 5 numbers"),
        ({"adapt_to_pi_aloha": True}, "adapt_to_pi_aloha"),
        ({"use_cache": False}, "use_cache=false"),
        ({"chunk_size": 4}, "lerobot refuses these settings of policy 'smolvla'"),
        ({"vlm_model_name": "/nowhere/vlm"}, "lerobot refuses .*nowhere"),
    ],
)
def test_a_smolvla_that_cannot_be_built_is_refused_in_one_line(node, change, message):
    with pytest.raises(UserError, match=message):
        build(node | change, fake_spec())


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    def absent(*_, **__):
        raise ImportError("'transformers' is required")

    monkeypatch.setattr(modeling_smolvla, "require_package", absent)
    with pytest.raises(UserError, match=r"needs more packages: pip install -e '\.\[vla\]'"):
        build(VLA, fake_spec())
