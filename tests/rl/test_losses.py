"""The checks of the method: algebra, trust region, and where the loss has its minimum."""

import pytest
import torch

from robowm.rl.losses import nft_errors, old_decay, reference_errors, regression_target


def draws(seed=0, shape=(6, 3, 4)):
    generator = torch.Generator().manual_seed(seed)
    theta, old, sample = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    return theta, old, sample, torch.rand(shape[0], generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0])
def test_the_loss_is_a_regression_up_to_a_constant(beta):
    theta, old, sample, r = draws()
    constants = []
    for moved in (theta, theta + 1, 3 * theta):
        target = regression_target(old, sample, r, beta)
        constants.append(nft_errors(moved, old, sample, r, beta) - beta * (moved - target).square())
    torch.testing.assert_close(constants[0], constants[1])
    torch.testing.assert_close(constants[0], constants[2])


@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_a_sample_that_says_nothing_leaves_old_where_it_is(beta):
    _, old, sample, _ = draws()
    theta = old.clone().requires_grad_()
    nft_errors(theta, old, sample, torch.full((6,), 0.5, dtype=torch.float64), beta).sum().backward()
    torch.testing.assert_close(theta.grad, torch.zeros_like(old))


def test_the_best_sample_is_denoised_and_the_worst_mirrored():
    theta, old, sample, _ = draws()
    one = torch.ones(6, dtype=torch.float64)
    torch.testing.assert_close(nft_errors(theta, old, sample, one, 1.0), (theta - sample).square())
    torch.testing.assert_close(nft_errors(theta, old, sample, 0 * one, 1.0), (theta - (2 * old - sample)).square())


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
def test_the_first_gradient_does_not_depend_on_beta(beta):
    _, old, sample, r = draws()
    theta = old.clone().requires_grad_()
    nft_errors(theta, old, sample, r, beta).sum().backward()
    torch.testing.assert_close(theta.grad, 2 * (2 * r - 1)[:, None, None] * (old - sample))


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_the_minimum_over_a_gaussian_is_the_tilted_mean(beta):
    """x ~ N(mu, 1), r = sigmoid(2x): argmin = mu + (2 / beta) alpha (mu_plus - mu), alpha = E r, mu_plus = E[r x] / E r."""
    x = torch.randn(400_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.3
    r = torch.sigmoid(2 * x)
    old = x.mean().expand_as(x)
    theta = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([theta], max_iter=50)

    def closure():
        optimiser.zero_grad()
        loss = nft_errors(theta.expand_as(x), old, x, r, beta).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    alpha, plus = r.mean(), (r * x).mean() / r.mean()
    assert float(theta) == pytest.approx(float(x.mean() + 2 / beta * alpha * (plus - x.mean())), abs=1e-6)


def test_reference_errors_and_the_old_copy_s_decay():
    theta, old, *_ = draws()
    assert (reference_errors(theta, theta) == 0).all() and (reference_errors(theta, old) > 0).all()
    assert [old_decay(step, 0.001, 0.5) for step in (0, 100, 10_000)] == [0, 0.1, 0.5]
    assert old_decay(0, 0.01, 0.9, first=0.5) == 0.5
    with pytest.raises(ValueError, match="beta"):
        nft_errors(theta, old, theta, torch.ones(6), 0.0)
