from dataclasses import replace

import numpy as np
import pytest
import torch

from robowm.data.shares import StoreShare
from robowm.diffusion.schedule import together
from robowm.errors import UserError
from robowm.train.log import LOG, read_log
from robowm.types import Obs
from robowm.world_model.losses import TeacherForcing, clip_rows
from robowm.world_model.model import Context, Design
from robowm.world_model.predict import LoadedWorldModel
from robowm.world_model.self_forcing import SelfForwarded, SelfRollout, push, roll, rolling
from robowm.world_model.train import prepare
from tests.fakes import masked_store
from tests.world_model.conftest import NODE, train


@pytest.fixture
def parts(store):
    torch.manual_seed(0)
    sampler, net = prepare([StoreShare(store)], Design(NODE), batch_size=8, seed=0, loss=SelfRollout(depth=2))
    return net, sampler.batch(0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def drifts(x, level, context):
    """A model that paints the last context row, moved by the action: what it shows depends on what it showed before."""
    step = context.action[..., :1].cumsum(1) * 0.1
    return (context.rows[:, -1:] * 0.9 + step).expand_as(x)


def test_the_pinned_row_stays_and_the_oldest_leave():
    context, rows = torch.arange(3.0).view(1, 3, 1), torch.tensor([[[8.0], [9.0]]])
    assert push(context, rows, True).flatten().tolist() == [0, 8, 9]
    assert push(context, rows[:, :1], True).flatten().tolist() == [0, 2, 8]
    assert push(context, rows[:, :1], False).flatten().tolist() == [1, 2, 8]


def test_rolling_in_training_shows_what_imagination_shows(parts, monkeypatch):
    net, batch = parts
    monkeypatch.setattr(net, "x0", drifts)
    rows, action = clip_rows(net, batch)
    start = rows[:, 2:3].expand(-1, 3, -1)
    chunks = list(rolling(net, start, action, together(1, 4), generator()))
    shown, context = torch.cat([rows for rows, _ in chunks], 1), chunks[-1][1]
    assert torch.equal(context, roll(net, start, action, together(1, 4), generator()))
    model = LoadedWorldModel("", net, infer_width=8)
    obs = Obs({c: f[:, 2:3].numpy() for c, f in batch.frames.items()}, batch.state[:, 2:3].numpy(), None, batch.task)
    memory, rngs = model.start(obs), [np.random.default_rng(i) for i in range(8)]
    for i in range(2):
        predicted, memory = model.predict(memory, batch.action[:, 4 * i : 4 * i + 4].numpy(), rngs)
        for camera, frames in net.layout.frames(shown[:, 4 * i : 4 * i + 4]).items():
            assert np.abs(frames.numpy().astype(int) - predicted.frames[camera]).max() <= 1
    torch.testing.assert_close(context[:, 1:], shown[:, -2:])
    assert torch.equal(context[:, 0], start[:, 0])


def test_without_own_contexts_it_is_teacher_forcing_one_chunk_later(parts):
    net, batch = parts
    supervised = TeacherForcing(context_noise=0, cold_start=0, pure_noise=1.0, perceptual_weight=0)
    found, _ = SelfForwarded(supervised, depth=1, share=0.0)(net, batch, generator())
    rows, action = clip_rows(net, batch)
    context = torch.cat([rows[:, :1], rows[:, 5:7]], 1)
    clip = replace(batch, action_valid=batch.action_valid[:, 4:], weight=batch.weight[:, 4:])
    expected, _ = supervised.denoise(net, rows[:, 7:11], Context(context, torch.zeros(8, 3), action[:, 4:]), clip, generator())
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0)  # the noise to start from is another draw


def test_own_contexts_hold_what_the_model_showed_and_carry_no_gradient(parts, monkeypatch):
    net, batch = parts
    seen = []

    def records(x, level, context):
        seen.append(context.rows.clone())
        return drifts(x, level, context) + 0 * next(net.parameters()).sum()

    monkeypatch.setattr(net, "x0", records)
    loss = SelfForwarded(TeacherForcing(context_noise=0, cold_start=0, perceptual_weight=0), depth=1, share=1.0)
    total, terms = loss(net, batch, generator())
    rows, _ = clip_rows(net, batch)
    assert len(seen) == 2 and torch.equal(seen[0], rows[:, :3]) and torch.equal(seen[1][:, 0], rows[:, 0])
    assert not torch.allclose(seen[1][:, 1:], rows[:, 5:7]) and not seen[1].requires_grad
    assert total.requires_grad and set(terms) == {"pixels", "state"}


PLAIN = TeacherForcing(context_noise=0, cold_start=0, perceptual_weight=0)


def test_a_self_rollout_learns_from_every_chunk_in_contexts_of_its_own_with_one_step_of_gradient(parts, monkeypatch):
    net, batch = parts
    calls, weight = [], torch.nn.Parameter(torch.zeros(()))

    def records(x, level, context):
        calls.append((context.rows.clone(), level[0, 0].item(), torch.is_grad_enabled()))
        return drifts(x, level, context) + weight

    monkeypatch.setattr(net, "x0", records)
    total, terms = SelfRollout(depth=2, sampling_steps=4, perceptual_weight=0)(net, batch, generator(3))
    rows, action = clip_rows(net, batch)
    steps = len(calls) // 2
    for chunk in (calls[:steps], calls[steps:]):
        assert [graded for *_, graded in chunk] == [False] * (steps - 1) + [True]
        assert [level for _, level, _ in chunk] == [1 - i / 4 for i in range(steps)]
    expected = net.layout.rounded(drifts(rows[:, 7:11], None, Context(rows[:, :3], torch.zeros(8, 3), action[:, :4])))
    assert torch.equal(calls[0][0], rows[:, :3])
    torch.testing.assert_close(calls[-1][0], push(rows[:, :3], expected, True))
    assert not calls[-1][0].requires_grad and set(terms) == {"pixels", "state"}
    total.backward()
    assert weight.grad != 0


def test_a_self_rollout_exits_at_every_step_in_turn(parts, monkeypatch):
    net, batch = parts
    exits = set()
    for seed in range(40):
        seen = []
        monkeypatch.setattr(net, "x0", lambda x, level, context, s=seen: s.append(level[0, 0].item()) or drifts(x, level, context))
        SelfRollout(depth=1, sampling_steps=3, perceptual_weight=0)(net, batch, generator(seed))
        exits.add(round(seen[-1], 3))
    assert exits == {1.0, 0.667, 0.333}


def test_a_self_rollout_of_one_chunk_and_step_is_teacher_forcing_at_pure_noise(parts):
    net, batch = parts
    found, _ = SelfRollout(depth=1, perceptual_weight=0)(net, batch, generator())
    rows, action = clip_rows(net, batch)
    context = Context(rows[:, :3], torch.zeros(8, 3), action[:, :4])
    clip = replace(batch, action_valid=batch.action_valid[:, :4], weight=batch.weight[:, :4])
    expected, _ = replace(PLAIN, pure_noise=1.0).denoise(net, rows[:, 3:7], context, clip, generator())
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0)  # another draw of the noise


def test_with_a_lag_rows_that_are_finished_at_the_exit_stay_as_they_were_sampled(parts, monkeypatch):
    net, batch = parts
    weight = torch.nn.Parameter(torch.zeros(4))  # one for each row of a chunk
    net.design = replace(net.design, lag=1)
    monkeypatch.setattr(net, "x0", lambda x, level, context: drifts(x, level, context) + weight[None, :, None])
    graded = set()
    for seed in range(30):
        weight.grad = None
        SelfRollout(depth=1, sampling_steps=1, perceptual_weight=0)(net, batch, generator(seed))[0].backward()
        graded.add(tuple((weight.grad != 0).tolist()))
    assert graded == {tuple(row >= exit for row in range(4)) for exit in range(4)}


def test_the_real_context_of_a_self_rollout_is_worsened_as_asked_and_its_levels_are_told(parts, monkeypatch):
    net, batch = parts
    seen = []
    monkeypatch.setattr(net, "x0", lambda x, level, context: seen.append(context) or drifts(x, level, context))
    rows, _ = clip_rows(net, batch)
    SelfRollout(depth=2, context_noise=0.5, state_noise=0.0, perceptual_weight=0)(net, batch, generator())
    first, second = seen[0], seen[-1]
    assert not first.level[:, 0].any() and torch.equal(first.rows[:, 0], rows[:, 0]), "the pinned row stays clean"
    assert (first.level[:, 1:] > 0).all() and len(first.level[:, 1].unique()) == 8
    assert torch.equal(net.layout.state(first.rows), net.layout.state(rows[:, :3])), "state_noise=0 spares proprioception"
    off = (net.layout.video(first.rows - rows[:, :3])[:, 1:]).flatten(1).std(1)
    torch.testing.assert_close(off, first.level[:, 1], rtol=0.05, atol=0)
    assert not second.level.any(), "what the model made has no noise"
    seen.clear()
    SelfRollout(depth=1, cold_start=1.0, perceptual_weight=0)(net, batch, generator())
    assert torch.equal(seen[0].rows, rows[:, 2:3].expand(-1, 3, -1)) and not seen[0].level.any()


def test_noisy_real_rows_that_stay_in_a_long_context_keep_their_levels(store, monkeypatch):
    torch.manual_seed(0)
    sampler, net = prepare([StoreShare(store)], Design(NODE, context=6), batch_size=4, seed=0, loss=SelfRollout(depth=2))
    seen = []
    monkeypatch.setattr(net, "x0", lambda x, level, context: seen.append(context.level) or drifts(x, level, context))
    SelfRollout(depth=2, context_noise=0.5, perceptual_weight=0)(net, sampler.batch(0), generator())
    assert torch.equal(seen[1], torch.cat([seen[0][:, :1], seen[0][:, 5:], torch.zeros(4, 4)], 1)) and (seen[1][:, 1:3] > 0).all()


def test_a_self_rollout_knows_no_setting_that_it_would_not_use():
    for setting in ("pure_noise", "own_levels", "supervised"):
        with pytest.raises(TypeError, match=setting):
            SelfRollout(**{setting: 0.5})


def test_a_lag_trains_by_self_rollout_without_levels_drawn_at_random(store, tmp_path):
    design = {"network": NODE, "sampling_steps": 2, "lag": 1}
    train(store, tmp_path / "wm", steps=1, world_model=design, loss=SelfRollout(depth=1, sampling_steps=2, perceptual_weight=0))
    with pytest.raises(UserError, match="own_levels"):
        train(store, tmp_path / "other", world_model=design, loss=SelfForwarded(depth=1))


def test_a_batch_without_a_step_to_predict_is_one_line(parts):
    net, batch = parts
    empty = replace(batch, action_valid=torch.zeros_like(batch.action_valid))
    with pytest.raises(UserError, match="holds no valid step"):
        SelfRollout(depth=2, perceptual_weight=0)(net, empty, generator())


def test_rows_with_levels_of_their_own_are_the_asked_share(parts, monkeypatch):
    net, batch = parts
    seen = []
    monkeypatch.setattr(net, "x0", lambda x, level, context: seen.append(level) or drifts(x, level, context))
    for seed in range(40):
        replace(PLAIN, pure_noise=0.0, own_levels=0.25)(net, batch, generator(seed))
    apart = torch.cat([(level != level[:, :1]).any(1) for level in seen]).float().mean()
    assert 0.17 < apart < 0.33


@pytest.mark.parametrize("loss", [SelfForwarded(depth=1), SelfRollout(depth=2)])
def test_trains_from_the_same_command_and_leaves_no_trace_of_the_longer_clips(store, tmp_path, loss):
    train(store, tmp_path / "wm", loss=loss)
    losses = [line["loss"] for line in read_log(tmp_path / "wm" / LOG)]
    assert np.isfinite(losses).all()
    from robowm.artefacts import read_artefact

    record = read_artefact(tmp_path / "wm", "world_model")
    assert record["config"]["loss"]["_target_"].endswith(f"self_forcing.{type(loss).__name__}") and record["model"]["design"]["chunk"] == 4


def test_the_foreground_term_of_every_loss_is_the_error_where_masks_show_object_and_gripper(tmp_path):
    share = StoreShare(masked_store(tmp_path / "store", [12, 15, 20], unseen=1).path)
    for loss in (replace(PLAIN, foreground_weight=0.5), SelfRollout(2, perceptual_weight=0, foreground_weight=0.5), forwarded(0.5)):
        torch.manual_seed(0)
        sampler, net = prepare([share], Design(NODE), batch_size=8, seed=0, loss=loss)
        batch = sampler.batch(0)
        assert set(batch.frames) == {"external", "wrist", "external_mask", "wrist_mask"} and list(net.layout.cameras) == [
            "external",
            "wrist",
        ]
        total, terms = loss(net, batch, generator())
        torch.testing.assert_close(total, terms["pixels"] + terms["state"] + 0.5 * (terms["object"] + terms["gripper"]))
        total.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters()), "cameras without the object count for nothing"


def forwarded(weight):
    return SelfForwarded(replace(PLAIN, foreground_weight=weight), depth=1)


def test_the_foreground_term_looks_at_the_masks_of_the_rows_that_it_compares(tmp_path, monkeypatch):
    """Of a flat guess in grey, the error at the object follows from its colour; the background is as wrong as can be."""
    share = StoreShare(masked_store(tmp_path / "store", [12, 15, 20]).path)
    loss = SelfRollout(2, perceptual_weight=0, foreground_weight=1.0)
    sampler, net = prepare([share], Design(NODE), batch_size=8, seed=0, loss=loss)
    batch = sampler.batch(0)
    monkeypatch.setattr(net, "x0", lambda x, level, context: torch.zeros_like(x, requires_grad=True))
    colour = (torch.tensor([230.0, 60.0, 40.0]) / 127.5 - 1).square().mean()
    torch.testing.assert_close(loss(net, batch, generator())[1]["object"], colour)
    shifted = replace(batch, frames={name: f.roll(1, 1) if name.endswith("_mask") else f for name, f in batch.frames.items()})
    assert (loss(net, shifted, generator())[1]["object"] - colour).abs() > 1e-3, "masks of the row before show something else"


def test_foreground_weight_on_a_store_without_masks_says_how_to_record_them(store, tmp_path):
    with pytest.raises(UserError, match=r"has no masks \(external_mask\); record it with env.masks=true"):
        train(store, tmp_path / "wm", steps=1, loss=SelfRollout(depth=1, perceptual_weight=0, foreground_weight=0.1))
