import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from robowm.errors import UserError
from robowm.train.checkpoint import load_newest
from robowm.train.learner import Learner, derive_seed
from robowm.train.log import read_log
from tests.train import toy

ROOT = Path(__file__).parents[2]


class StopHere(Exception):
    pass


def stopping(learner, at):
    def batch(step):
        if step == at:
            raise StopHere
        return learner.batch(step)

    return Learner(learner.model, batch, learner.loss)


def assert_same_state(one: Path, other: Path):
    a, b = load_newest(one / "checkpoints"), load_newest(other / "checkpoints")
    assert a.step == b.step and a.facts == b.facts and a.tensors.keys() == b.tensors.keys()
    for name, value in a.tensors.items():
        assert torch.equal(value, b.tensors[name]), name


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    seen = []
    toy.train(folder, learner=toy.make(seen))
    assert seen == list(range(100))
    return folder


@pytest.mark.parametrize("stop", [50, 57])  # on a checkpoint, and seven steps after one
def test_fifty_and_fifty_steps_equal_a_hundred_bit_for_bit(straight, tmp_path, stop):
    seen = []
    with pytest.raises(StopHere):
        toy.train(tmp_path, learner=stopping(toy.make(seen), stop))
    averaged = toy.train(tmp_path, learner=toy.make(seen))
    assert seen == list(range(stop)) + list(range(50, 100))  # data order
    assert_same_state(straight, tmp_path)  # weights, average and its counter, optimiser
    for name, value in averaged.state_dict().items():
        assert torch.equal(value, load_newest(straight / "checkpoints").tensors[f"ema.{name}"])
    keys = ("step", "loss", "error", "grad_norm", "lr")
    logs = [[{k: line[k] for k in keys} for line in read_log(folder / "log.jsonl")] for folder in (straight, tmp_path)]
    assert logs[0] == logs[1]


def test_a_run_killed_at_once_resumes_to_the_same_bits(straight, tmp_path):
    assert subprocess.run([sys.executable, "-m", "tests.train.toy", str(tmp_path), "71"], cwd=ROOT).returncode == -9
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == list(range(5, 71, 5))
    toy.train(tmp_path)
    assert_same_state(straight, tmp_path)
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == list(range(5, 101, 5))


def test_a_damaged_checkpoint_is_passed_over_and_the_result_is_the_same(straight, tmp_path):
    with pytest.raises(StopHere):
        toy.train(tmp_path, learner=stopping(toy.make(), 57))
    newest = tmp_path / "checkpoints" / "last"
    assert newest.resolve().name == "00000050"
    data = bytearray((newest / "state.safetensors").read_bytes())
    data[-3] ^= 1
    (newest / "state.safetensors").write_bytes(bytes(data))
    with pytest.warns(UserWarning, match=r"00000050 is damaged .*falling back"):
        toy.train(tmp_path)
    assert_same_state(straight, tmp_path)


def test_a_finished_run_trains_nothing_and_returns_the_same_weights(straight):
    seen = []
    averaged = toy.train(straight, learner=toy.make(seen))
    assert seen == [] and not averaged.training
    assert torch.equal(averaged.out.weight, load_newest(straight / "checkpoints").tensors["ema.out.weight"])


def test_a_resume_with_other_settings_is_refused_and_names_them(tmp_path):
    toy.train(tmp_path, steps=10, config={"model": {"width": 4}})
    with pytest.raises(UserError) as error:
        toy.train(tmp_path, steps=20, optim=replace(toy.OPTIM, lr=0.5), config={"model": {"width": 8}})
    for part in ("steps: 10 -> 20", "optim.lr: 0.01 -> 0.5", "model.width: 4 -> 8"):
        assert part in str(error.value)
    assert "seed" not in str(error.value)


def test_a_term_that_some_steps_lack_is_averaged_over_the_others(tmp_path):
    made = toy.make([])
    calls = []

    def loss(model, batch, generator):
        value, terms = made.loss(model, batch, generator)
        calls.append(1)
        return value, {**terms, **({"seen": torch.tensor(3.0)} if len(calls) % 2 else {})}

    toy.train(tmp_path, learner=Learner(made.model, made.batch, loss))
    assert {line["seen"] for line in read_log(tmp_path / "log.jsonl")} == {3.0}


def test_nan_in_the_data_is_refused_with_the_step(tmp_path):
    def batch(step):
        clean = toy.batch(step)
        return clean | {"x": clean["x"] * (math.nan if step == 13 else 1.0)}

    with pytest.raises(UserError, match=r"loss is nan at step 13 \(error=nan\)"):
        toy.train(tmp_path, learner=Learner(toy.make().model, batch, toy.loss))
    assert load_newest(tmp_path / "checkpoints").step == 10


def test_nan_in_a_gradient_is_refused_with_the_step(tmp_path):
    def loss(model, batch, generator):
        error, terms = toy.loss(model, batch, generator)
        return error + (model.out.weight * 0).abs().sum().sqrt(), terms  # finite, with an infinite slope

    with pytest.raises(UserError, match="gradient is nan at step 0"):
        toy.train(tmp_path, learner=Learner(toy.make().model, toy.batch, loss))
    assert load_newest(tmp_path / "checkpoints") is None


def test_two_processes_that_see_different_batches_end_with_equal_weights(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launcher, "-m", "tests.train.toy", str(tmp_path), "-1"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    ranks = [torch.load(tmp_path / f"rank{r}.pt", weights_only=True) for r in (0, 1)]
    for name in ("conv.weight", "out.weight", "out.bias"):
        assert torch.equal(ranks[0]["live"][name], ranks[1]["live"][name])
        assert torch.equal(ranks[0]["ema"][name], ranks[1]["ema"][name])
    assert json.loads((tmp_path / "checkpoints/last/meta.json").read_text())["config"]["processes"] == 2
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == list(range(5, 101, 5))


def test_bf16_trains_on_the_cpu_and_keeps_float32_weights(tmp_path):
    averaged = toy.train(tmp_path, precision="bf16")
    assert averaged.out.weight.dtype == torch.float32
    losses = [line["loss"] for line in read_log(tmp_path / "log.jsonl")]
    assert losses[-1] < 0.5 * losses[0]


def test_seeds_are_unrelated_for_neighbouring_steps_and_ranks():
    seeds = {derive_seed(seed, step, rank) for seed in range(3) for step in range(50) for rank in range(2)}
    assert len(seeds) == 300
