"""What ``suite=diffusers`` refuses before either model trains."""

import pytest

from robowm.data.fake import fake_store
from robowm.errors import UserError
from robowm.evaluation.bench import diffusers
from robowm.evaluation.bench.diffusers import Timing
from robowm.train.optim import OptimConfig
from robowm.world_model.losses import TeacherForcing
from tests.world_model.conftest import NODE


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("stores")
    return {
        "train": fake_store(root / "train", [9, 9]).path,
        "expert": fake_store(root / "a", [12, 13], first_seed=100_000).path,
        "open_loop": fake_store(root / "b", [8, 9], first_seed=100_100).path,
    }


@pytest.mark.parametrize(
    "changes, found",
    [
        ({"horizon": 12}, r"\(open_loop\) has 0 episodes of at least horizon=12 steps; lengths are 8 to 9"),
        ({"timing": Timing(frames=14)}, r"a has no episode of timing.frames=14 steps, the longest has 13; record longer ones or lower it"),
        ({"horizon": 6}, r"horizon=6; it must be a positive multiple of 4"),
        ({"held_out": {}}, r"held_out names none"),
    ],
)
def test_what_the_held_out_episodes_cannot_give_is_one_line_before_the_training(stores, tmp_path, monkeypatch, changes, found):
    monkeypatch.setattr(diffusers, "plan", None)
    held_out = {name: stores[name] for name in ("expert", "open_loop")}
    given = {"timing": Timing(frames=12), "horizon": 8, "held_out": held_out, "optim": OptimConfig(lr=1e-3, warmup_steps=2, ema=0.9)}
    with pytest.raises(UserError, match=found):
        diffusers.run(
            stores=[{"path": stores["train"]}],
            task="t/t",
            world_model={"network": NODE},
            loss=TeacherForcing(),
            output_dir=tmp_path / "out",
            seconds=1,
            batch_size=2,
            **{**given, **changes},
        )
    assert not (tmp_path / "out").exists()
