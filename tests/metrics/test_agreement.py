import numpy as np
import pytest

from robowm.errors import UserError
from robowm.metrics.agreement import mean_maximum_rank_violation, pearson


def test_pearson_by_hand():
    assert pearson([0.1, 0.2, 0.3], [0.2, 0.4, 0.6]) == pytest.approx(1)
    assert pearson([0.1, 0.2, 0.3], [0.6, 0.4, 0.2]) == pytest.approx(-1)
    assert np.isnan(pearson([0.5, 0.5], [0.1, 0.2]))


def test_rank_violations_cost_their_real_difference():
    assert mean_maximum_rank_violation([0.1, 0.5, 0.9], [0.2, 0.3, 0.8]) == 0
    assert mean_maximum_rank_violation([0.5, 0.1, 0.9], [0.2, 0.3, 0.8]) == pytest.approx(2 * 0.1 / 3)


def test_one_policy_cannot_be_ranked():
    with pytest.raises(UserError, match="at least two"):
        pearson([0.5], [0.5])
