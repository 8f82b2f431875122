import pytest
import torch

from robowm.diffusion import flow
from robowm.diffusion.sample import clipped, follow, sample
from robowm.diffusion.schedule import check_schedule, staggered, together
from robowm.errors import UserError


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def path():
    x0, noise = drawn(3, 4, 5), drawn(3, 4, 5, seed=1)
    level = torch.rand(3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 0.98 + 0.01
    return x0, noise, level, flow.add_noise(x0, noise, level)


def test_path_ends_are_data_and_noise():
    x0, noise = drawn(2, 3, 4), drawn(2, 3, 4, seed=1)
    assert torch.equal(flow.add_noise(x0, noise, torch.zeros(2, 3, dtype=torch.float64)), x0)
    assert torch.equal(flow.add_noise(x0, noise, torch.ones(2, 3, dtype=torch.float64)), noise)


def test_level_is_applied_frame_by_frame():
    x0, noise = drawn(2, 3, 4), drawn(2, 3, 4, seed=1)
    level = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    mixed = flow.add_noise(x0, noise, level)
    assert torch.equal(mixed[0, 1], noise[0, 1]) and torch.equal(mixed[0, 0], x0[0, 0]) and torch.equal(mixed[1, 1], x0[1, 1])


def test_x0_velocity_and_noise_are_interchangeable(path):
    x0, noise, level, x_t = path
    v = flow.velocity(x0, noise)
    torch.testing.assert_close(flow.x0_from_velocity(x_t, v, level), x0)
    torch.testing.assert_close(flow.velocity_from_x0(x_t, x0, level), v)
    torch.testing.assert_close(flow.noise_from_x0(x_t, x0, level), noise)


def test_training_levels_have_the_asked_share_of_pure_noise():
    levels = flow.draw_levels((20_000, 2), 0.3, torch.Generator().manual_seed(0))
    assert float((levels == 1).double().mean()) == pytest.approx(0.3, abs=0.01)
    rest = levels[levels < 1]
    assert float(rest.min()) > 0 and float(rest.double().mean()) == pytest.approx(0.5, abs=0.01)


def test_perfect_denoiser_is_reached_from_any_noise_in_any_number_of_steps():
    x0 = drawn(2, 3, 4)
    for steps in (1, 2, 7):
        torch.testing.assert_close(sample(lambda x, level: x0, drawn(2, 3, 4, seed=1), together(steps, 3)), x0)


def test_sampling_a_gaussian_gives_its_mean_and_variance():
    """For x0 ~ N(m, s^2) the exact denoiser is linear, so the sampler's output law is known: N(m, s^2) as steps grow."""
    m, s = 0.7, 0.4

    def exact(x, level):
        t = flow.spread(level, x)
        gain = (1 - t) * s**2 / ((1 - t) ** 2 * s**2 + t**2)
        return m + gain * (x - (1 - t) * m)

    x = sample(exact, drawn(20_000, 1, 1), together(100, 1))
    assert float(x.mean()) == pytest.approx(m, abs=0.01) and float(x.std()) == pytest.approx(s, rel=0.03)
    fresh = drawn(99, 20_000, 1, 1, seed=5)
    ancestral = sample(exact, drawn(20_000, 1, 1), together(100, 1), fresh)
    assert float(ancestral.mean()) == pytest.approx(m, abs=0.01)
    assert not torch.equal(ancestral, x)


def test_frames_follow_their_own_column_of_the_schedule():
    """First frame done before the second starts: the denoiser must see exactly the table, and finished frames must not move."""
    table = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.5], [0.0, 0.0]])
    seen, states = [], []

    def denoise(x, level):
        seen.append(level[0].tolist())
        states.append(x.clone())
        return torch.full_like(x, float(len(seen)))

    x = sample(denoise, drawn(2, 2, 3), table)
    assert seen == [[1.0, 1.0], [0.0, 1.0], [0.0, 0.5]]
    assert torch.equal(states[1][:, 1], states[0][:, 1]), "a frame whose level stays is not moved"
    assert (x[:, 0] == 1).all() and (x[:, 1] == 3).all()


def test_wrappers_compose():
    shifted = lambda inner: lambda x, level: inner(x, level) + 1  # noqa: E731
    big = lambda x, level: torch.full_like(x, 5.0)  # noqa: E731
    noise = drawn(1, 1, 2)
    assert (sample(clipped(shifted(big), -1, 1), noise, together(2, 1)) == 1).all()
    assert (sample(shifted(clipped(big, -1, 1)), noise, together(2, 1)) == 2).all()


def test_staggered_frames_start_one_lag_after_each_other():
    torch.testing.assert_close(together(4, 2), torch.linspace(1, 0, 5)[:, None].expand(-1, 2))
    assert staggered(2, 3, 1).tolist() == [[1, 1, 1], [0.5, 1, 1], [0, 0.5, 1], [0, 0, 0.5], [0, 0, 0]]
    assert staggered(2, 2, 2).tolist() == [[1, 1], [0.5, 1], [0, 1], [0, 0.5], [0, 0]]
    for table in (staggered(3, 5, 1), staggered(1, 4, 1), staggered(4, 3, 2)):
        check_schedule(table)
    with pytest.raises(UserError, match="lag=-1"):
        staggered(2, 2, -1)


def test_a_path_may_be_followed_in_parts():
    shrink = lambda x, level: x * (1 - level[..., None])  # noqa: E731
    noise, table = drawn(2, 3, 4), staggered(4, 3, 1).double()
    halfway = follow(shrink, noise, table[:4])
    assert not torch.equal(halfway, noise) and torch.equal(follow(shrink, noise, table[:1]), noise)
    torch.testing.assert_close(follow(shrink, halfway, table[3:]), sample(shrink, noise, table))


def test_a_schedule_that_rises_or_never_ends_is_refused():
    with pytest.raises(ValueError, match="never rise"):
        check_schedule(torch.tensor([[1.0], [0.5], [0.6], [0.0]]))
    with pytest.raises(ValueError, match="end at 0"):
        check_schedule(torch.tensor([[1.0], [0.5]]))
    with pytest.raises(UserError, match="sampling_steps=0"):
        together(0, 4)
