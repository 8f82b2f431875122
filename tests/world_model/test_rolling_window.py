"""A window of rows that rolls on across the borders of chunks: what it shows, under which actions, at what cost."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from robowm.data.shares import StoreShare
from robowm.diffusion.schedule import rolling, staggered
from robowm.errors import UserError
from robowm.types import Obs
from robowm.world_model.losses import TeacherForcing
from robowm.world_model.model import Design
from robowm.world_model.predict import LoadedWorldModel
from robowm.world_model.rolling_window import RollingWorldModel, load_rolling_world_model
from robowm.world_model.self_forcing import SelfRollout
from robowm.world_model.train import prepare
from tests.world_model.conftest import NODE, train

N, STEPS = 3, 10


@pytest.fixture
def parts(store):
    """The network, a true first observation and actions f32 [N, 10, A]."""
    torch.manual_seed(0)
    sampler, net = prepare([StoreShare(store)], Design(NODE, sampling_steps=4, lag=1), batch_size=N, seed=0, loss=SelfRollout(depth=3))
    batch = sampler.batch(0)
    obs = Obs({c: f[:, 2:3].numpy() for c, f in batch.frames.items()}, batch.state[:, 2:3].numpy(), None, batch.task)
    return net.eval(), obs, batch.action[:, :STEPS].numpy()


def rolled(model, obs, actions, parts=(STEPS,)):
    """Return proprioception f32 [N, 10, S] after predictions of as many rows as ``parts`` say."""
    memory, rngs, found, begin = model.start(obs), [np.random.default_rng(i) for i in range(len(obs))], [], 0
    for rows in parts:
        shown, memory = model.predict(memory, actions[:, begin : begin + rows], rngs)
        found.append(shown.state)
        begin += rows
    return np.concatenate(found, 1)


def oracle(seen, net):
    """A denoiser that knows: every row is the last one of the context, moved by the actions up to it."""

    def x0(x, level, context):
        seen.append((x.clone(), level.clone(), context))
        return context.rows[:, -1:] + context.action[..., :1].cumsum(1) * 0.1

    return x0


def test_the_stairs_stand_where_they_stood_one_row_further():
    for steps, frames, lag in ((4, 4, 1), (4, 4, 2), (3, 4, 1), (4, 4, 4), (1, 4, 1)):
        onto, down = rolling(steps, frames, lag)
        assert torch.equal(torch.cat([onto, down[1:]]), staggered(steps, frames, lag)[: steps + 1])
        assert len(down) == lag + 1 and not down[-1, 0] and (onto[0] == 1).all()
        assert torch.equal(torch.cat([down[-1, 1:], torch.ones(1)]), down[0])
    for steps, frames, lag in ((4, 4, 0), (5, 4, 1), (2, 4, 3)):
        with pytest.raises(
            UserError, match=rf"takes world_model.lag from {-(-steps // frames)} to {steps} with .* found {lag}; train with"
        ):
            rolling(steps, frames, lag)


@pytest.mark.parametrize("told", [(STEPS,), (4, 4, 2), (1, 3, 6)])
def test_each_row_is_the_one_that_its_own_action_leads_to(parts, monkeypatch, told):
    net, obs, actions = parts
    seen = []
    monkeypatch.setattr(net, "x0", oracle(seen, net))
    model = RollingWorldModel(LoadedWorldModel("", net, infer_width=N))
    moved = net.normalize_action.normalize(actions)[..., :1].cumsum(1) * 0.1
    expected = net.normalize_state.unnormalize(net.normalize_state.normalize(obs.state) + moved)
    np.testing.assert_allclose(rolled(model, obs, actions, told), expected, atol=1e-4)
    action = net.normalize_action.normalize(actions)
    borders = np.repeat(np.cumsum(told), told)  # of the actions known when a row comes out
    for row, (_, _, context) in enumerate(seen[-STEPS:]):
        known = np.minimum(np.arange(row, row + 4), borders[row] - 1)
        np.testing.assert_array_equal(context.action.numpy(), action[:, known])


def test_a_row_costs_as_many_passes_as_the_lag_wherever_it_is(parts, monkeypatch):
    net, obs, actions = parts
    for steps, lag in ((4, 1), (4, 2), (2, 2)):
        net.design = replace(net.design, lag=lag)
        seen = []
        monkeypatch.setattr(net, "x0", oracle(seen, net))
        model = RollingWorldModel(LoadedWorldModel("", net, infer_width=N, sampling_steps=steps))
        counts = []
        memory, rngs = model.start(obs), [np.random.default_rng(i) for i in range(N)]
        for row in range(STEPS):
            _, memory = model.predict(memory, actions[:, row : row + 1], rngs)
            counts.append(len(seen))
        assert np.diff(counts, prepend=0).tolist() == [steps] + [lag] * (STEPS - 1)


def test_noise_rolls_on_with_its_row_across_chunks(parts, monkeypatch):
    net, obs, actions = parts
    seen = []
    monkeypatch.setattr(net, "x0", lambda x, level, context: seen.append((x.clone(), level.clone())) or torch.zeros_like(x))
    rolled(RollingWorldModel(LoadedWorldModel("", net, infer_width=N)), obs, actions, (4, 4, 2))
    stairs = seen[3:]  # three passes bring the window onto them
    assert len(stairs) == STEPS and all(torch.equal(level, torch.tensor([[0.25, 0.5, 0.75, 1]]).expand(N, 4)) for _, level in stairs)
    for (x, level), (after, lower) in pairwise(stairs):
        torch.testing.assert_close(after[:, :3] / lower[:, :3, None], x[:, 1:] / level[:, 1:, None])
    entered = torch.stack([x[:, 3] for x, _ in stairs], 1)
    assert abs(entered.std() - 1) < 0.02 and len(entered[..., 0].unique()) == N * STEPS


def test_episodes_do_not_depend_on_who_is_beside_them_or_begins_later(parts):
    net, obs, actions = parts
    model = RollingWorldModel(LoadedWorldModel("", net, infer_width=2), told=4)
    together = rolled(model, obs, actions, (4, 4))
    memory, rngs = model.start(obs), [np.random.default_rng(i) for i in range(N)]
    late, others = np.array([1]), np.array([0, 2])
    for who in (others, late):
        _, after = model.predict(memory.take(who), actions[who, :4], [rngs[i] for i in who])
        memory = memory.put(who, after)
    shown, _ = model.predict(memory, actions[:, 4:8], rngs)
    np.testing.assert_allclose(shown.state, together[:, 4:], atol=1e-5)


def test_a_trained_model_rolls_from_its_folder_under_a_name_of_its_own(store, tmp_path):
    loss = TeacherForcing(own_levels=0.5, perceptual_weight=0)
    train(store, tmp_path / "wm", steps=1, world_model={"network": NODE, "sampling_steps": 4, "lag": 1}, loss=loss)
    model = load_rolling_world_model(tmp_path / "wm", told=8, device="cpu")
    assert model.name.endswith("-rolling8") and model.chunk == 8
    train(store, tmp_path / "flat", steps=1, loss=TeacherForcing(perceptual_weight=0))
    with pytest.raises(UserError, match=r"found 0; train with such a lag and loss.own_levels=0.5"):
        load_rolling_world_model(tmp_path / "flat", device="cpu")
    with pytest.raises(UserError, match=r"told=0; it must be at least 1"):
        load_rolling_world_model(tmp_path / "wm", told=0, device="cpu")
