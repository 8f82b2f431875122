"""A recovery is a set-back that is made good."""

import numpy as np
import pytest

from robowm.data.fake import fake_episode, fake_spec
from robowm.errors import UserError
from robowm.metrics.recoveries import Recoveries, recoveries


@pytest.mark.parametrize(
    ("way", "count"),
    [
        ([5, 4, 3, 2, 1, 0], 0),  # straight there
        ([5, 3, 4, 5, 2, 0], 1),  # back by 2, and past where it was
        ([5, 3, 4, 5, 4], 0),  # never made good
        ([5, 3, 3.5, 2, 2.5, 1], 0),  # too small to count
        ([5, 3, 5, 2, 4, 1], 2),
        ([5, 3, 4, 3.5, 4.5, 3, 2], 1),  # one set-back in two steps, good only once it is past 3
    ],
)
def test_set_backs_that_are_made_good_are_counted(way, count):
    assert recoveries(np.array(way, float), rise=1.0) == count


def test_an_episode_is_seen_by_a_person():
    class Sees:
        def way(self, obs):
            assert obs.state.shape == (11, 1, 5)
            return np.array([5, 4, 3, 5, 5, 2, 1, 1, 1, 1, 0.0])

    assert Recoveries(Sees(), rise=1.0)(fake_episode(fake_spec(), 10)) == 1.0
    with pytest.raises(UserError, match=r"rise=0"):
        Recoveries(Sees(), rise=0)
