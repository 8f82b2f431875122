"""A recovery is being stuck and coming past it without help."""

import numpy as np
import pytest

from robowm.data.fake import fake_episode, fake_spec
from robowm.errors import UserError
from robowm.metrics.recoveries import Recoveries, recoveries


@pytest.mark.parametrize(
    ("way", "count"),
    [
        ([5, 4, 3, 2, 1, 0], 0),  # straight there
        ([5, 3, 3, 3, 2, 0], 0),  # two steps of rest, three are wanted
        ([5, 3, 3, 3, 3, 2, 0], 1),
        ([5, 3, 4, 5, 4, 2, 0], 1),  # set back and past it
        ([5, 3, 2.95, 2.9, 2.95, 2, 0], 1),  # creeping is no progress
        ([5, 3, 2.9, 2.8, 2.7, 0], 0),  # ... until it adds up to some
        ([5, 3, 4, 5, 4, 4], 0),  # never past it
        ([5, 3, 3, 3, 3, 2, 2, 2, 2, 0], 2),
        ([5, 0, 3, 3, 3, 3, 2], 0),  # after the goal nothing counts
    ],
)
def test_being_stuck_and_coming_past_it_is_counted(way, count):
    assert recoveries(np.array(way, float), patience=3, gain=0.25) == count


def test_an_episode_is_seen_by_a_person():
    class Sees:
        def way(self, obs):
            assert obs.state.shape == (11, 1, 5)
            return np.array([5, 4, 3, 5, 5, 2, 1, 1, 1, 1, 0.0])

    assert Recoveries(Sees(), patience=2)(fake_episode(fake_spec(), 10)) == 2.0
    assert Recoveries(Sees())(fake_episode(fake_spec(), 10)) == 0.0
    with pytest.raises(UserError, match=r"patience=0"):
        Recoveries(Sees(), patience=0)
