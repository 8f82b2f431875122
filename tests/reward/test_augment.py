import torch

from robowm.reward.augment import augment, blur, noise, relight, shift


def pictures(b=64, side=16):
    return torch.rand((b, 3, side, side), generator=torch.Generator().manual_seed(0))


def test_augmentation_is_a_function_of_the_generator():
    one, other = (augment(pictures(), torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.equal(one, augment(pictures(), torch.Generator().manual_seed(6)))


def test_a_shift_moves_whole_samples_by_whole_pixels():
    before = torch.zeros(64, 2, 32, 32)
    before[:, :, 16, 16] = 1
    after = shift(before, torch.Generator().manual_seed(0))
    assert torch.equal(after.sum((2, 3)), torch.ones(64, 2))
    places = after[:, 0].flatten(1).argmax(1)
    assert torch.equal(places, after[:, 1].flatten(1).argmax(1))
    rows, columns = places // 32 - 16, places % 32 - 16
    assert rows.unique().tolist() == columns.unique().tolist() == [-2, -1, 0, 1, 2]


def test_a_shift_repeats_the_edge():
    constant = torch.full((4, 1, 8, 8), 0.3)
    assert torch.equal(shift(constant, torch.Generator().manual_seed(0)), constant)


def test_half_of_the_samples_stay_sharp():
    before = pictures()
    unchanged = (blur(before, torch.Generator().manual_seed(1)) == before).flatten(1).all(1)
    assert 0.35 < unchanged.float().mean() < 0.65


def test_light_and_noise_stay_within_their_bounds():
    before = pictures()
    assert (relight(before, torch.Generator().manual_seed(1)) - before).abs().max() <= 0.15 + 0.08
    assert 0.01 < (noise(before, torch.Generator().manual_seed(1)) - before).std() < 0.05
