import pytest
import torch

from robowm.rl.advantages import group_advantages, informative, mixed_advantages, optimality, top_and_bottom


def test_advantages_compare_within_a_group_alone():
    reward = torch.tensor([[1.0, 2.0, 3.0], [101.0, 102.0, 103.0]])
    found = group_advantages(reward)
    torch.testing.assert_close(found[0], found[1])
    assert found[0, 1] == 0 and float(found[0, 2]) == pytest.approx(1.5 / 1.5**0.5, rel=1e-3)


def test_equal_candidates_say_nothing():
    reward = torch.full((1, 4), 0.3)
    assert (optimality(group_advantages(reward)) == 0.5).all() and not informative(reward, 0.0).any()


def test_optimality_covers_zero_to_one_around_one_half():
    r = optimality(torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0]))
    assert r.tolist() == [0, 0, 0.25, 0.5, 0.75, 1, 1]
    reward = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    assert optimality(group_advantages(reward)).std() > 0.3, "a clip at 1 spreads r; DiffusionNFT's 5 bunches it around one half"
    assert float(optimality(group_advantages(reward)).mean()) == pytest.approx(0.5, abs=0.02)


def test_informative_groups_differ_by_more_than_the_metric_s_noise():
    assert informative(torch.tensor([[0.0, 0.2], [0.0, 0.02]]), 0.05).tolist() == [True, False]


def test_top_and_bottom_leave_the_middle_out():
    reward = torch.tensor([[5.0, 1.0, 3.0, 9.0, 2.0, 4.0]])
    assert top_and_bottom(reward, 2, 2).tolist() == [[3, 0, 4, 1]]
    assert top_and_bottom(reward, 2, 0).tolist() == [[3, 0]]
    assert sorted(top_and_bottom(reward, 2, 4).flatten().tolist()) == list(range(6))
    with pytest.raises(ValueError, match="no more than there are"):
        top_and_bottom(reward, 4, 3)
    with pytest.raises(ValueError, match="two candidates"):
        top_and_bottom(reward[:, :1], 1, 0)


def test_mixed_advantages_do_not_depend_on_the_units_of_a_metric():
    psnr, ssim = torch.randn(3, 6, generator=torch.Generator().manual_seed(0)), torch.rand(3, 6, generator=torch.Generator().manual_seed(1))
    mixed = mixed_advantages({"psnr": psnr, "ssim": ssim}, {"psnr": 1.0, "ssim": 3.0})
    torch.testing.assert_close(mixed, mixed_advantages({"psnr": 50 * psnr, "ssim": ssim}, {"psnr": 1.0, "ssim": 3.0}), atol=1e-2, rtol=0)
    expected = (group_advantages(psnr) + 3 * group_advantages(ssim)) / 4
    torch.testing.assert_close(mixed, expected)
