import pytest
import torch

from robowm.errors import UserError
from robowm.protocols import Reward
from robowm.reward.compose import WeightedSum, weigh
from robowm.types import Score


def score(**terms):
    return Score(torch.zeros(2, 3), {name: torch.full((2, 3), value) for name, value in terms.items()})


def test_the_total_is_the_weighted_sum_of_raw_terms():
    found = weigh([score(success=1.0, psnr=20.0), score(lpips=0.5)], {"success": 2.0, "psnr": 0.1, "lpips": -1.0})
    assert torch.allclose(found.total, torch.full((2, 3), 3.5))
    assert set(found.terms) == {"success", "psnr", "lpips"} and found.terms["psnr"][0, 0] == 20.0


@pytest.mark.parametrize("weights", [{"success": 1.0}, {"success": 1.0, "psnr": 1.0, "ssim": 1.0}, {}])
def test_names_of_terms_equal_names_of_weights(weights):
    with pytest.raises(UserError, match="differ"):
        weigh([score(success=1.0, psnr=20.0)], weights)


def test_two_terms_of_one_name_are_refused():
    with pytest.raises(UserError, match="named 'success'"):
        weigh([score(success=1.0), score(success=0.0)], {"success": 1.0})


def test_a_weighted_sum_is_a_reward():
    reward = WeightedSum([lambda clip, reference: score(success=0.25)], {"success": 4.0})
    assert isinstance(reward, Reward) and torch.equal(reward(None).total, torch.ones(2, 3))
