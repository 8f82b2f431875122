import pytest
import torch
from torch import nn

from robowm.errors import UserError
from robowm.train.optim import Ema, OptimConfig, ema_decay_at, lr_at


def test_learning_rate_warms_up_then_falls_along_a_cosine():
    config = OptimConfig(lr=1.0, warmup_steps=10)
    assert lr_at(0, 110, config) == pytest.approx(0.1)
    assert lr_at(9, 110, config) == 1.0 == lr_at(10, 110, config)
    assert lr_at(60, 110, config) == pytest.approx(0.5)
    assert 0 < lr_at(109, 110, config) < 1e-3
    assert lr_at(109, 110, OptimConfig(lr=1.0, warmup_steps=10, schedule="constant")) == 1.0


def test_ema_follows_the_power_schedule_and_its_cap():
    config = OptimConfig(ema=0.9999)
    assert ema_decay_at(0, config) == 0.0
    assert ema_decay_at(99, config) == pytest.approx(1 - 100**-0.75)
    assert ema_decay_at(10**9, config) == 0.9999


def test_ema_averages_weights_and_copies_buffers():
    model = nn.BatchNorm1d(2)
    ema = Ema(model, OptimConfig(ema=0.5))
    history = []
    for value in (1.0, 3.0, 5.0):
        with torch.no_grad():
            model.weight.fill_(value)
            model.running_mean.fill_(value)
        ema.update(model)
        history.append(ema.weights["weight"][0].item())
    first = 1.0  # decays: 0, 1 - 2^-.75, then capped at one half
    second = first + 2**-0.75 * (3.0 - first)
    assert history == pytest.approx([first, second, 0.5 * second + 0.5 * 5.0], rel=1e-5)
    assert ema.weights["running_mean"][0] == 5.0 and ema.updates == 3


@pytest.mark.parametrize("wrong", [{"lr": 0.0}, {"schedule": "linear"}, {"ema": 1.0}, {"grad_clip": -1.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        OptimConfig(**wrong)
