"""PCG on a plane where everything is known: a plan is one step, the latent it leads to is where it ends."""

import numpy as np
import pytest
import torch

from robowm.errors import UserError
from robowm.guidance.lpb import Lpb
from robowm.guidance.pcg import Moment, NoisyPcg, Pcg
from robowm.guidance.phases import Phases
from robowm.guidance.targets import Targets
from robowm.policy.steps import Step

EARLY = Step(0.1, 0.3, 0.95, denoise=lambda x: 0.5 * x)


def targets():
    """Two phases of one prototype each: at the origin and at (10, 0); demonstrated soft distances spread evenly over 0.1 .. 0.9."""
    prototypes = np.array([[[0, 0, 0]], [[10, 0, 0]]], np.float32)
    table = Phases(
        prototypes,
        np.ones((2, 1), bool),
        np.full(2, 0.1, np.float32),
        np.linspace(0.1, 0.9, 9, dtype=np.float32)[None].repeat(2, 0),
        np.zeros(2, np.float32),
        np.linspace(0, 2, 101, dtype=np.float32),
    )
    return Targets.of(table, torch.from_numpy(prototypes[:, 0]), seen=2)


def moment(plans, phase=None, latent=None):
    n = len(plans)
    return Moment(
        torch.zeros(n, 3) if latent is None else latent,
        torch.zeros(n, dtype=torch.long) if phase is None else phase,
        targets(),
        predict=lambda plan: plan[:, 0],
    )


def at(*places):
    return torch.tensor(places, dtype=torch.float32)[:, None]  # [N, 1, 3]


def test_only_plans_between_the_bounds_are_guided_and_they_come_nearer():
    plans = at([0.2, 0, 0], [0.5, 0, 0], [0.95, 0, 0])
    _, moved, on = Pcg(scale=0.1, lower=30, upper=80).adjust(moment(plans), plans, EARLY, plans)
    assert on.tolist() == [False, True, False]  # distances .2, .5, .95 against bounds .3 and .8
    assert torch.equal(moved[[0, 2]], plans[[0, 2]])
    assert torch.allclose(moved[1, 0], torch.tensor([0.4, 0, 0]), atol=1e-5)  # unit gradient of a distance, times the scale


def test_the_noisy_plan_moves_by_the_gradient_through_the_denoiser_where_the_gate_is_open():
    noisy = at([1.0, 0, 0], [0.4, 0, 0])  # EARLY's denoiser halves them
    x, clean, on = NoisyPcg(scale=0.1, lower=30, upper=80).adjust(moment(noisy), noisy, EARLY, 0.5 * noisy)
    assert on.tolist() == [True, False] and torch.equal(clean, 0.5 * noisy)
    assert torch.allclose(x[:, 0, 0], torch.tensor([1.0 - 0.1 * 0.3 * 0.5, 0.4]), atol=1e-5)


def test_bounds_can_be_taken_away():
    plans = at([0.2, 0, 0], [0.95, 0, 0], [60, 0, 0])
    assert Pcg(lower=None, upper=None).adjust(moment(plans), plans, EARLY, plans)[2].tolist() == [True, True, True]
    assert Pcg(lower=30, upper=None).adjust(moment(plans), plans, EARLY, plans)[2].tolist() == [False, True, True]


def test_a_plan_that_reaches_the_next_phase_is_left_alone():
    plans = at([9.5, 0, 0], [5, 0, 0])
    assert Pcg(lower=None, upper=None).adjust(moment(plans), plans, EARLY, plans)[2].tolist() == [False, True]
    last = torch.ones(2, dtype=torch.long)
    assert Pcg(lower=None, upper=None).adjust(moment(plans, last), plans, EARLY, plans)[2].tolist() == [True, True]


@pytest.mark.parametrize(
    "guide", [Pcg(scale=0, lower=None, upper=None), NoisyPcg(scale=0, lower=None, upper=None), Lpb(scale=0, threshold=None)]
)
def test_a_scale_of_zero_changes_no_bit(guide):
    plans = torch.randn(5, 1, 3)
    noisy = torch.randn(5, 1, 3)
    x, clean, _ = guide.adjust(moment(plans, latent=torch.ones(5, 3)), noisy, EARLY, plans)
    assert torch.equal(x, noisy) and torch.equal(clean, plans)


@pytest.mark.parametrize("guide", [Pcg(noisiest=0.1), NoisyPcg(noisiest=0.1), Lpb(noisiest=0.1)])
def test_noisy_steps_are_never_guided(guide):
    plans = at([0.5, 0, 0])
    x, clean, on = guide.adjust(moment(plans, latent=at([9, 9, 9])[:, 0]), plans, EARLY, plans)
    assert not on.any() and torch.equal(clean, plans) and torch.equal(x, plans)


def test_guidance_works_inside_inference_mode():
    now = moment(at([0.5, 0, 0]), latent=at([3, 0, 0])[:, 0])
    with torch.inference_mode():
        plans = at([0.5, 0, 0])
        for guide in (Pcg(lower=None), Lpb(threshold=None)):
            _, _, on = guide.adjust(now, plans.clone(), EARLY, plans)
            assert on.all()


def test_phases_only_go_forward_and_only_after_patience():
    how, table = Pcg(patience=2, switch=80, margin=0.2), targets()
    phase, streak = torch.zeros(3, dtype=torch.long), torch.zeros(3, dtype=torch.long)
    near_next = at([9.6, 0, 0], [5, 0, 0], [0, 0, 0])[:, 0]
    phase, streak = how.advance(near_next, table, phase, streak)
    assert phase.tolist() == [0, 0, 0] and streak.tolist() == [1, 0, 0]
    phase, streak = how.advance(near_next, table, phase, streak)
    assert phase.tolist() == [1, 0, 0] and streak.tolist() == [0, 0, 0]
    for _ in range(4):
        phase, streak = how.advance(torch.zeros(3, 3), table, phase, streak)
    assert phase.tolist() == [1, 0, 0]


def test_a_broken_streak_starts_again():
    how, table = Pcg(patience=2), targets()
    phase = streak = torch.zeros(1, dtype=torch.long)
    for place in (9.6, 0.0, 9.6):
        phase, streak = how.advance(torch.tensor([[place, 0, 0]]), table, phase, streak)
    assert phase.item() == 0 and streak.item() == 1


def test_lpb_moves_the_noisy_plan_towards_the_nearest_demonstrated_moment_where_now_is_unlike_any():
    plans, latent = at([4, 0, 0], [4, 0, 0]), torch.tensor([[3.0, 0, 0], [0.1, 0, 0]])
    guide = Lpb(scale=0.1, threshold=50)  # moments are up to 2 apart
    x, clean, on = guide.adjust(moment(plans, latent=latent), plans, EARLY, plans)
    assert on.tolist() == [True, False] and torch.equal(clean, plans)
    step = 0.1 * EARLY.spread * 0.5  # the denoiser halves, so the gradient is one half
    assert torch.allclose(x[0, 0], torch.tensor([4 - step, 0, 0])) and torch.equal(x[1], plans[1])


@pytest.mark.parametrize("settings", [{"scale": -1}, {"threshold": 101}, {"threshold": -1}])
def test_settings_of_lpb_that_make_no_sense_are_refused(settings):
    with pytest.raises(UserError, match="guide:"):
        Lpb(**settings)


@pytest.mark.parametrize("settings", [{"scale": -1}, {"sharpness": 0}, {"patience": 0}, {"noisiest": 50}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(UserError, match="guide:"):
        Pcg(**settings)
