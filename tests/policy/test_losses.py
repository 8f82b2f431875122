import math

import pytest
import torch

from robowm.errors import UserError
from robowm.policy.losses import effective_share, repeat_edges, weighted_mean


def make():
    generator = torch.Generator().manual_seed(0)
    errors = torch.rand(5, 7, generator=generator)
    valid = torch.arange(7)[None] < torch.tensor([7, 3, 1, 7, 5])[:, None]
    return errors, valid, torch.rand(5, 7, generator=generator)


def test_weights_of_one_give_the_mean_over_valid_steps():
    errors, valid, _ = make()
    assert weighted_mean(errors, valid, torch.ones(5, 7)) == pytest.approx(errors[valid].mean().item(), rel=1e-6)
    everything = torch.ones(5, 7, dtype=torch.bool)
    assert torch.equal(weighted_mean(errors, everything, torch.ones(5, 7)), errors.sum() / 35)


def test_is_the_weighted_mean():
    errors, valid, weight = make()
    expected = (errors * weight)[valid].sum() / weight[valid].sum()
    assert weighted_mean(errors, valid, weight) == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("rubbish", [1e9, math.nan, math.inf])
def test_padding_reaches_neither_value_nor_gradient(rubbish):
    results = []
    for padding in (0.0, rubbish):
        errors, valid, weight = make()
        errors = torch.where(valid, errors, padding).requires_grad_()
        value = weighted_mean(errors, valid, torch.where(valid, weight, padding))
        value.backward()
        results.append((value.detach(), errors.grad))
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])
    assert (results[1][1][~make()[1]] == 0).all()


def test_all_weights_zero_gives_zero_and_no_gradient():
    errors, valid, _ = make()
    errors.requires_grad_()
    weighted_mean(errors, valid, torch.zeros(5, 7)).backward()
    assert (errors.grad == 0).all()


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.5])
def test_impossible_weights_are_refused_by_address(wrong):
    errors, valid, weight = make()
    weight[3, 2] = wrong
    with pytest.raises(UserError, match="clip 3, step 2"):
        weighted_mean(errors, valid, weight)


def test_shapes_that_would_broadcast_are_refused():
    errors, valid, _ = make()
    with pytest.raises(UserError, match=r"weight \(5, 1\)"):
        weighted_mean(errors, valid, torch.ones(5, 1))


def test_effective_share():
    valid = torch.tensor([[True, True, True, True, False]])
    assert effective_share(valid, torch.ones(1, 5)) == 1.0
    assert effective_share(valid, torch.tensor([[3.0, 0, 0, 0, 9]])) == pytest.approx(0.25)


def test_padding_repeats_the_nearest_valid_action():
    action = torch.arange(12.0).view(2, 6, 1)
    valid = torch.tensor([[0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]], dtype=torch.bool)
    assert repeat_edges(action, valid)[..., 0].tolist() == [[1, 1, 2, 3, 3, 3], [8, 8, 8, 9, 10, 11]]
    changed = torch.where(valid[..., None], action, math.nan)
    assert torch.equal(repeat_edges(changed, valid), repeat_edges(action, valid))
    assert (repeat_edges(changed, torch.zeros_like(valid)) == 0).all()
