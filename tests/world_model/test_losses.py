from dataclasses import replace

import pytest
import torch

from robowm.data.fake import step_of_frame, step_of_row
from robowm.data.shares import StoreShare
from robowm.errors import UserError
from robowm.metrics.fidelity import lpips
from robowm.world_model.losses import TeacherForcing, clip_rows, cold_started, masked_mean, worsened
from robowm.world_model.model import Context, Design
from robowm.world_model.train import prepare
from tests.world_model.conftest import NODE


@pytest.fixture(scope="module")
def parts(store):
    torch.manual_seed(0)
    sampler, net = prepare([StoreShare(store)], Design(NODE), batch_size=16, seed=0, loss=TeacherForcing())
    return net, sampler.batch(0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_pairing_first_row_then_history_then_the_rows_that_actions_lead_to(parts):
    _, batch = parts
    frames = torch.as_tensor(step_of_frame(batch.frames["external"].numpy()))
    states, actions = (torch.as_tensor(step_of_row(x.numpy())) for x in (batch.state, batch.action))
    t = actions[:, 0]
    assert frames.shape == (16, 1 + 2 + 4) and torch.equal(frames, states)
    assert (frames[:, 0] == 0).all(), "the pinned row is the episode's first"
    assert torch.equal(frames[:, 2], t) and torch.equal(frames[:, 1], (t - 1).clamp(min=0))
    assert torch.equal(frames[:, 3:], actions + 1), "action t leads from row t to row t + 1"
    assert batch.action_valid.all()


def test_rows_hold_pixels_and_state_and_give_them_back(parts):
    net, batch = parts
    rows, action = clip_rows(net, batch)
    assert rows.shape == (16, 7, 2 * 3 * 32 * 32 + 5) and float(rows.abs().max()) <= 1 + 1e-6 and float(action.abs().max()) <= 1 + 1e-6
    for camera, frames in net.layout.frames(rows).items():
        assert torch.equal(frames, batch.frames[camera])
    assert torch.equal(net.layout.rounded(rows), rows)
    torch.testing.assert_close(net.normalize_state.unnormalize(net.layout.state(rows)), batch.state)


def test_padded_targets_change_neither_loss_nor_gradient(parts):
    net, batch = parts
    valid = batch.action_valid.clone()
    valid[3, 2:] = False
    masked = replace(batch, action_valid=valid)
    frames = {camera: rows.clone() for camera, rows in batch.frames.items()}
    frames["wrist"][3, 5:] = 255 - frames["wrist"][3, 5:]
    state = batch.state.clone()
    state[3, 5:] += 1
    loss = TeacherForcing(pure_noise=1.0)  # otherwise the noisy sample itself shows the target

    def outcome(clip):
        net.zero_grad()
        total, _ = loss(net, clip, generator())
        total.backward()
        return total.detach(), [p.grad.clone() for p in net.parameters()]

    (a, grads_a), (b, grads_b) = outcome(masked), outcome(replace(masked, frames=frames, state=state))
    assert torch.equal(a, b) and all(torch.equal(x, y) for x, y in zip(grads_a, grads_b, strict=True))
    assert not torch.equal(a, outcome(batch)[0])
    net.zero_grad()


def test_masked_mean_divides_by_the_valid_count_and_weighs():
    errors, valid = torch.tensor([[1.0, 5.0], [3.0, float("nan")]]), torch.tensor([[True, True], [True, False]])
    assert float(masked_mean(errors, valid, torch.ones(2, 2))) == 3.0
    assert float(masked_mean(errors, valid, torch.tensor([[1.0, 0.0], [2.0, 1.0]]))) == pytest.approx(7 / 3)
    with pytest.raises(UserError, match="no valid step"):
        masked_mean(errors, torch.zeros(2, 2, dtype=torch.bool), torch.ones(2, 2))


def test_context_noise_has_its_level_and_spares_the_pinned_row():
    rows, scale = torch.zeros(400, 3, 50), torch.ones(50)
    scale[40:] = 0.1
    noisy, level = worsened(rows, scale, 0.3, True, generator())
    assert (noisy[:, 0] == 0).all() and (level[:, 0] == 0).all()
    assert torch.equal(level[:, 1], level[:, 2]) and float(level[:, 1].min()) > 0 and float(level[:, 1].max()) <= 0.3
    measured = noisy[:, 1:, :40].std((1, 2))
    assert float((measured / level[:, 1]).mean()) == pytest.approx(1, abs=0.02)
    assert float((noisy[:, 1:, 40:].std((1, 2)) / level[:, 1]).mean()) == pytest.approx(0.1, abs=0.01)


def test_cold_starts_repeat_the_current_row_in_the_asked_share():
    rows = torch.arange(3.0).view(1, 3, 1).expand(2000, 3, 2)
    cold = cold_started(rows, 0.15, generator())
    repeated = (cold == 2).all((1, 2))
    assert float(repeated.float().mean()) == pytest.approx(0.15, abs=0.03)
    assert torch.equal(cold[~repeated], rows[~repeated])


def test_only_pinned_cameras_are_seen_in_the_pinned_row(parts):
    net, batch = parts
    rows, action = clip_rows(net, batch)
    x, context = rows[:, 3:], rows[:, :3]
    level, clean = torch.ones(16, 4), torch.zeros(16, 3)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=generator(1)))
    base = net.x0(x, level, Context(context, clean, action))
    half = net.layout.pixels // 2
    other_wrist, other_external = context.clone(), context.clone()
    other_wrist[:, 0, half : 2 * half] = 0.3
    other_external[:, 0, :half] = 0.3
    assert torch.equal(net.x0(x, level, Context(other_wrist, clean, action)), base)
    assert not torch.equal(net.x0(x, level, Context(other_external, clean, action)), base)


def test_terms_are_reported_raw(parts):
    net, batch = parts
    loss = TeacherForcing(state_weight=3.0, perceptual_weight=0.2)
    total, terms = loss(net, batch, generator())
    assert set(terms) == {"pixels", "state", "perceptual"}
    torch.testing.assert_close(total, terms["pixels"] + 3 * terms["state"] + 0.2 * terms["perceptual"])
    same, _ = loss(net, batch, generator())
    assert torch.equal(total, same), "all randomness comes from the generator"
    assert set(TeacherForcing(perceptual_weight=0)(net, batch, generator())[1]) == {"pixels", "state"}


def test_the_perceptual_term_is_lpips_of_the_pictures_drawn(parts):
    net, batch = parts
    rows, _ = clip_rows(net, batch)
    clean, every = rows[:, net.context_rows :], TeacherForcing(perceptual_pictures=10**6)
    assert float(every.perceptual(net, clean, clean, batch, generator())) == 0
    darker = (clean * 0.5).requires_grad_()
    expected = torch.stack([lpips(net.layout.frames(darker)[c], net.layout.frames(clean)[c]).mean() for c in net.layout.cameras]).mean()
    found = every.perceptual(net, darker, clean, batch, generator())
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0)  # frames() rounds to grey levels
    found.backward()
    assert torch.isfinite(darker.grad).all() and darker.grad[..., : net.layout.pixels].abs().sum() > 0
    assert (darker.grad[..., net.layout.pixels :] == 0).all()
