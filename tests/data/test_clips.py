"""Index arithmetic: no window crosses an episode's end."""

import numpy as np
import pytest

from robowm.data import clips
from robowm.errors import UserError

LENGTHS = np.array([3, 50, 2, 40, 0])
OBS, ACT = (-1, 0), tuple(range(-1, 7))  # a window of 8 actions


def brute_force(lengths, obs, act, keep):
    return [(e, t) for e, n in enumerate(lengths) for t in range(n + 1) if keep(t, n)]


def pairs(anchors):
    return list(zip(*(a.tolist() for a in anchors), strict=True))


@pytest.mark.parametrize(
    ("name", "keep"),
    [
        ("policy", lambda t, n: t < n),
        ("rows", lambda t, n: True),
        ("start", lambda t, n: t == 0 and n > 0),
        ("inside", lambda t, n: all(0 <= t + o <= n for o in OBS) and all(0 <= t + a < n for a in ACT)),
        ("future", lambda t, n: all(t + o <= n for o in OBS) and all(t + a < n for a in ACT)),
    ],
)
def test_anchors_are_those_that_counting_by_hand_gives(name, keep):
    assert pairs(clips.ANCHORS[name](LENGTHS, OBS, ACT)) == brute_force(LENGTHS, OBS, ACT, keep)


def test_a_window_as_long_as_the_episode_fits_once():
    obs, act = range(9), range(8)
    assert pairs(clips.inside_anchors(np.array([7, 8, 9]), obs, act)) == [(1, 0), (2, 0), (2, 1)]


def test_rows_outside_the_episode_repeat_its_edge_and_are_invalid():
    rows, valid = clips.window(LENGTHS, np.array([0, 0, 1]), np.array([0, 2, 49]), np.array([-1, 0, 1]))
    assert rows.tolist() == [[0, 0, 1], [1, 2, 2], [48, 49, 49]]
    assert valid.tolist() == [[False, True, True], [True, True, False], [True, True, False]]


def test_an_empty_episode_has_no_valid_rows():
    rows, valid = clips.window(LENGTHS, np.array([4]), np.array([0]), np.array([0, 1]))
    assert not valid.any() and (rows == 0).all()


def test_first_rows_count_up():
    assert clips.first_rows(LENGTHS).tolist() == [0, 3, 53, 55, 95]
    assert clips.first_rows(np.zeros(0, int)).tolist() == []


@pytest.mark.parametrize("offsets", [[], [0, 0], [1, 0], [0.5]])
def test_offsets_must_ascend(offsets):
    with pytest.raises(UserError, match="obs_offsets"):
        clips.check_offsets(offsets, [0])
