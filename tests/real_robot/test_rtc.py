"""Real-time chunking on a small diffusion policy with random weights: fresh plans agree with what is executed meanwhile."""

import numpy as np
import pytest
import torch

from real_robot.pilots import Blend
from real_robot.rtc import RealTime, held
from robowm.data.fake import fake_episode, fake_spec
from robowm.data.spec import ACTION, STATE
from robowm.errors import UserError
from robowm.policy.lerobot import adapter, build
from robowm.policy.lerobot_batch import Normalizers
from robowm.types import Obs
from tests.real_robot.fakes import Counting


@pytest.fixture(scope="module")
def policy():
    spec = fake_spec()
    torch.manual_seed(0)
    node = {
        "type": "robowm_diffusion",
        "cameras": list(spec.cameras),
        "encoder_width": 8,
        "denoiser_width": 32,
        "horizon": 16,
        "n_action_steps": 8,
    }
    model, inputs = build(node, spec)
    episodes = [fake_episode(spec, 30, seed) for seed in range(3)]
    arrays = {STATE: [e.state for e in episodes], ACTION: [e.action for e in episodes]}
    normalizers = Normalizers.fit(arrays, {STATE: spec.state_names, ACTION: spec.action_names}, model.config.normalization_mapping)
    made = adapter(model)(model, name="fake", inputs=inputs, normalizers=normalizers, spec=spec, device="cpu", infer_width=1)
    episode = episodes[0]
    return made, Obs({c: f[None, :2] for c, f in episode.frames.items()}, episode.state[None, :2], None, ("",)), episode.action


def distance(policy, plan, left, count):
    """Return the mean squared distance of the first ``count`` actions, normalised."""
    normalizer = policy.normalizers.by_key[ACTION]
    a, b = (normalizer.normalize(torch.from_numpy(np.ascontiguousarray(x[:count], np.float32))) for x in (plan, left))
    return float((a - b).pow(2).mean())


def test_a_plan_is_as_long_as_it_was_sampled_and_alike_without_a_running_one(policy):
    made, obs, action = policy
    none = np.zeros((0, action.shape[1]), np.float32)
    plan, _ = RealTime().plan(made, obs, made.start(1), np.random.default_rng(0), none, 0)
    assert plan.shape == (15, action.shape[1]) and np.isfinite(plan).all()
    plain, _ = Blend().plan(made, obs, made.start(1), np.random.default_rng(0), none, 0)
    assert np.allclose(plan[:8], plain, atol=1e-5)


def test_a_fresh_plan_agrees_with_what_is_executed_while_it_is_made(policy):
    made, obs, action = policy
    none, left = np.zeros((0, action.shape[1]), np.float32), action[4:14]
    free, _ = RealTime().plan(made, obs, made.start(1), np.random.default_rng(0), none, 0)
    bound, _ = RealTime().plan(made, obs, made.start(1), np.random.default_rng(0), left, 4)
    assert distance(made, bound, left, 4) < 0.7 * distance(made, free, left, 4)
    weak, _ = RealTime(strength=0.2).plan(made, obs, made.start(1), np.random.default_rng(0), left, 4)
    assert distance(made, bound, left, 4) < distance(made, weak, left, 4)


def test_what_is_held_lies_after_the_past_and_no_further_than_the_running_plan():
    known = torch.ones(3, 2)
    target, weight = held(known, torch.zeros(8, 4), past=1, delay=2)
    assert target[0, 1:4, :2].min() == 1 and not target[0, 4:].any() and not target[0, :, 2:].any()
    assert weight[0, 1:3, :2].min() == 1 and 0 < weight[0, 3, 0] < 1 and not weight[0, 0].any() and not weight[0, :, 2:].any()


def test_a_policy_that_does_not_sample_is_refused_in_one_line():
    with pytest.raises(UserError, match="use chunking=blend"):
        RealTime().plan(Counting(), None, None, None, np.zeros((0, 2), np.float32), 0)
    with pytest.raises(UserError, match="strength=0"):
        RealTime(strength=0)
