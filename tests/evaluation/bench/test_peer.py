import numpy as np
import pytest
import torch

from robowm.data.fake import fake_store
from robowm.data.shares import StoreShare
from robowm.data.store import EpisodeStore
from robowm.evaluation.bench.peer import DiffusersPeer, PeerLoss, _sigma, count, matched
from robowm.evaluation.world_models import free_run
from robowm.protocols import WorldModel
from robowm.types import Obs
from robowm.world_model.losses import TeacherForcing
from robowm.world_model.model import Design
from robowm.world_model.train import prepare

NODE = {"_target_": "robowm.nn.unet.VideoUNet", "channels": [128, 192], "condition": 256, "patch": 4}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    store = fake_store(tmp_path_factory.mktemp("peer") / "store", [12, 9, 20]).path
    torch.manual_seed(0)
    sampler, ours = prepare([StoreShare(store)], Design(NODE), batch_size=8, seed=0, loss=TeacherForcing())
    return EpisodeStore.open(store), sampler, ours


def first(store, n):
    episodes = [store.episode(i) for i in range(n)]
    frames = {camera: np.stack([e.frames[camera][:1] for e in episodes]) for camera in store.spec.cameras}
    return Obs(frames, np.stack([e.state[:1] for e in episodes]), None, tuple(e.task for e in episodes))


def test_it_has_as_many_parameters_as_ours(parts):
    *_, ours = parts
    assert abs(count(matched(ours)) / count(ours) - 1) < 0.15


def test_training_noise_is_the_schedulers(parts):
    peer = DiffusersPeer(parts[2], 8)
    peer.scheduler.set_timesteps(1000)
    torch.testing.assert_close(_sigma(peer.scheduler, peer.scheduler.timesteps.long()), peer.scheduler.sigmas[:-1], rtol=1e-3, atol=1e-3)


def test_one_step_shows_the_clean_estimate_at_pure_noise(parts, monkeypatch):
    store, _, ours = parts
    peer, seen = DiffusersPeer(ours, 8), []

    def x0(noisy, timestep, context, action):
        seen.append((float(noisy.std()), int(timestep), context.clone()))
        return torch.full_like(noisy, 0.5)

    monkeypatch.setattr(peer, "x0", x0)
    assert isinstance(peer, WorldModel)
    shown = free_run(peer, first(store, 3), np.zeros((3, 6, 5), np.float32), [1, 2, 3])
    assert shown["external"].shape == (3, 7, 32, 32, 3) and (shown["external"][:, 1:] == round(1.5 * 127.5)).all()
    (std, timestep, context), (_, _, after) = seen
    assert std == pytest.approx(1.0, abs=0.05) and timestep == 999
    assert torch.equal(context[:, 0], context[:, 1]) and (after - (round(1.5 * 127.5) / 127.5 - 1)).abs().max() < 1e-6


def test_it_learns(parts):
    _, sampler, ours = parts
    torch.manual_seed(0)
    peer, loss = DiffusersPeer(ours, 8), PeerLoss(0.8)
    optimiser = torch.optim.AdamW(peer.parameters(), 2e-3)
    found = []
    for step in range(30):
        value, _ = loss(peer, sampler.batch(step % 4), torch.Generator().manual_seed(step))
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        found.append(float(value.detach()))
    assert np.mean(found[-5:]) < 0.6 * np.mean(found[:5])
