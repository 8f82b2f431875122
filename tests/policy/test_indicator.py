"""A policy conditioned on an indicator of improvement."""

import numpy as np
import pytest
import torch

from robowm.data.fake import fake_store
from robowm.data.sidecar import write_sidecar
from robowm.errors import UserError
from robowm.policy import lerobot_diffusion
from robowm.policy.indicator import BETTER, UNKNOWN, USUAL, conditioned, shown_indicator
from robowm.policy.lerobot import load_policy
from robowm.policy.train import run as train
from tests.policy.helpers import OPTIM, STATE, make_policy


def test_three_in_ten_are_dropped_and_the_unknown_stay_so():
    improved = torch.tensor([1, 0, -1]).repeat(2000)
    shown = shown_indicator(improved, torch.Generator().manual_seed(0)).view(-1, 3)
    assert (shown[:, 2] == UNKNOWN).all()
    for column, wanted in ((0, BETTER), (1, USUAL)):
        assert set(shown[:, column].tolist()) == {UNKNOWN, wanted}
        assert (shown[:, column] == UNKNOWN).float().mean() == pytest.approx(0.3, abs=0.03)


def test_a_policy_that_becomes_conditioned_acts_as_it_did_until_it_learns_otherwise():
    base = make_policy(STATE).model.eval()
    before = torch.random.get_rng_state()
    made = conditioned(base).eval()
    assert torch.equal(before, torch.random.get_rng_state()) and conditioned(made) is made and not base.config.indicator
    x, t, context = torch.randn(3, 16, 5), torch.full((3,), 50), torch.randn(3, base.diffusion.unet.condition[0].in_features - 64)
    plain = lerobot_diffusion.x0(base, x, t, context)
    assert torch.equal(lerobot_diffusion.x0(made, x, t, context), plain)
    with torch.no_grad():
        made.diffusion.indicator.weight[BETTER] += 1.0
    asked = context + made.diffusion.indicator.weight[BETTER]
    better = lerobot_diffusion.x0(made, x, t, asked)
    one = lerobot_diffusion.x0(base, x, t, asked)
    torch.testing.assert_close(better, plain + 1.5 * (one - plain))  # classifier-free guidance from the unconditioned estimate


def test_marks_beside_weights_make_it_so_and_it_is_saved_that_way(tmp_path):
    store = fake_store(tmp_path / "s", [30])
    write_sidecar(store, "recap", {"weight": np.ones(30, np.float32), "improved": np.arange(30) % 2})
    options = {"steps": 2, "optim": OPTIM, "batch_size": 8, "seed": 0, "device": "cpu", "precision": "fp32"}
    train(stores=[{"path": store.path}], policy=STATE, output_dir=tmp_path / "base", **options)
    train(stores=[{"path": store.path, "weights": "recap"}], init_from=tmp_path / "base", output_dir=tmp_path / "recap", **options)
    made = load_policy(tmp_path / "recap", device="cpu").model
    assert made.config.indicator and made.diffusion.indicator.weight.abs().sum() > 0
    assert not load_policy(tmp_path / "base", device="cpu").model.config.indicator


def test_other_kinds_of_policy_are_refused():
    act = make_policy(
        {"type": "act", "environment_state": True, "dim_model": 32, "n_heads": 2, "dim_feedforward": 32, "latent_dim": 4}
    ).model
    with pytest.raises(UserError, match="type 'act' takes no indicator"):
        conditioned(act)
