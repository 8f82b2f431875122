"""The normaliser: one map for training and inference, safe for dimensions that do not vary."""

import json
import warnings

import numpy as np
import pytest
import torch

from robowm.data.normalize import Normalizer
from robowm.errors import UserError

DATA = np.stack([np.linspace(-3, 5, 50), np.full(50, 0.3), 0.7 + np.linspace(0, 1e-6, 50), np.linspace(100, 101, 50)], 1).astype(np.float32)


@pytest.fixture
def normalizer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Normalizer.fit(DATA)


def test_the_range_becomes_minus_one_to_one(normalizer):
    x = normalizer.normalize(DATA)
    assert x.dtype == np.float32
    np.testing.assert_allclose(x[[0, -1]][:, [0, 3]], [[-1, -1], [1, 1]], atol=1e-5)
    np.testing.assert_allclose(normalizer.unnormalize(x), DATA, atol=1e-5)


def test_nearly_constant_dimensions_map_to_their_mid_point_and_come_back_exactly(normalizer):
    x = normalizer.normalize(DATA)
    assert np.isfinite(x).all() and (x[:, 1] == 0).all() and abs(x[:, 2]).max() < 1e-6
    np.testing.assert_array_equal(normalizer.unnormalize(x)[:, 1:3], DATA[:, 1:3])
    assert normalizer.constant_dimensions() == [1, 2]


def test_they_are_named_in_a_warning():
    with pytest.warns(UserWarning, match=r"nearly constant, mapped to 0: grip = 0.3, yaw = 0.7"):
        Normalizer.fit(DATA, names=["x", "grip", "yaw", "z"])


def test_numpy_and_torch_give_the_same(normalizer):
    x = torch.from_numpy(DATA)
    np.testing.assert_array_equal(normalizer.normalize(x).numpy(), normalizer.normalize(DATA))
    np.testing.assert_array_equal(normalizer.unnormalize(x).numpy(), normalizer.unnormalize(DATA))
    assert normalizer.normalize(x.double()).dtype == torch.float64


@pytest.mark.filterwarnings("ignore:nearly constant")
def test_several_arrays_of_any_leading_shape_fit_as_one(normalizer):
    parts = Normalizer.fit([DATA[:20], DATA[20:].reshape(3, 10, 4), DATA[:0]])
    np.testing.assert_array_equal(parts.low, normalizer.low)
    np.testing.assert_array_equal(parts.high, normalizer.high)


def test_json_gives_back_the_same_map(normalizer):
    again = Normalizer.from_json(json.loads(json.dumps(normalizer.to_json())))
    np.testing.assert_array_equal(again.normalize(DATA), normalizer.normalize(DATA))


def test_safe_stats_make_a_plain_min_max_processor_the_same_map(normalizer):
    stats = normalizer.safe_stats()
    low, high = stats["min"], stats["max"]
    assert low.dtype == np.float32 and (high > low).all()
    np.testing.assert_allclose((DATA - low) / (high - low) * 2 - 1, normalizer.normalize(DATA), atol=2e-5)
    np.testing.assert_allclose((normalizer.normalize(DATA) + 1) / 2 * (high - low) + low, DATA, atol=2e-5)


def test_bad_data_are_refused():
    bad = DATA.copy()
    bad[4, 2] = np.nan
    with pytest.raises(UserError, match="yaw holds NaN"):
        Normalizer.fit(bad, names=["x", "grip", "yaw", "z"])
    with pytest.raises(UserError, match="no rows"):
        Normalizer.fit(np.zeros((0, 4), np.float32))


def test_a_wrong_width_is_refused(normalizer):
    with pytest.raises(UserError, match=r"4 dimensions and met an array of shape \(2, 3\)"):
        normalizer.normalize(np.zeros((2, 3), np.float32))


@pytest.mark.filterwarnings("ignore:nearly constant")
def test_a_standard_normaliser_gives_mean_zero_and_deviation_one_and_its_stats_the_same_map():
    standard = Normalizer.fit_standard([DATA[:20], DATA[20:]])
    x = standard.normalize(DATA.astype(np.float64))
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(0)[[0, 3]], 1)
    stats = standard.safe_stats()
    np.testing.assert_allclose((DATA - stats["mean"]) / stats["std"], x, atol=1e-4)
    assert (stats["std"][1:3] == 1).all()  # hardly vary
