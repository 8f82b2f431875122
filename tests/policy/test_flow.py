"""Euler sampling of a flow is lerobot's own, and a guide changes the clean estimate that each step heads for."""

import pytest
import torch
from lerobot.policies.common.flow_matching import euler_integrate

from robowm.policy.flow import sample_flow

NOISE = torch.randn(3, 16, 5, generator=torch.Generator().manual_seed(0))


def velocity(x, t):
    return 0.3 * x + t[:, None, None].sin()


@pytest.mark.parametrize("steps", [1, 4, 10])
def test_equals_lerobots_sampler_bit_for_bit_also_beside_a_guide_that_moves_nothing(steps):
    theirs = euler_integrate(velocity, NOISE, steps)
    assert torch.equal(sample_flow(velocity, NOISE, steps), theirs)
    assert torch.equal(sample_flow(velocity, NOISE, steps, lambda x, step, clean: (x, clean)), theirs)


def test_the_velocity_towards_a_plan_reaches_it():
    plan = torch.rand(3, 16, 5)
    torch.testing.assert_close(sample_flow(lambda x, t: (x - plan) / t[:, None, None], NOISE, 7), plan)


def test_a_step_heads_from_the_moved_sample_for_the_moved_estimate():
    seen = []

    def guide(x, step, clean):
        seen.append((step.level, step.spread))
        torch.testing.assert_close(step.denoise(x), clean)
        torch.testing.assert_close(clean, x - step.level * velocity(x, torch.full((3,), step.level)))
        return x + 1, clean - 2

    result = sample_flow(velocity, NOISE, 2, guide)
    x = NOISE
    for t in (1.0, 0.5):  # v' = (x' - x0') / t, by hand
        clean = x - t * velocity(x, torch.full((3,), t))
        x = x + 1 - 0.5 * ((x + 1) - (clean - 2)) / t
    torch.testing.assert_close(result, x)
    assert seen == [(1.0, 1.0), (0.5, 0.5)]


def test_an_estimate_forced_at_the_last_step_is_the_result():
    plan = torch.rand(3, 16, 5)
    forced = sample_flow(velocity, NOISE, 5, lambda x, step, clean: (x, plan if step.level < 0.3 else clean))
    torch.testing.assert_close(forced, plan, atol=1e-6, rtol=0)
