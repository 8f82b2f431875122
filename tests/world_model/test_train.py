import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from robowm.artefacts import read_artefact
from robowm.data.fake import fake_store
from robowm.errors import UserError
from robowm.train.log import LOG, read_log
from robowm.train.weights import WEIGHTS
from robowm.world_model.losses import TeacherForcing
from robowm.world_model.predict import KIND
from robowm.world_model.self_forcing import SelfForwarded, SelfRollout
from tests.world_model.conftest import NODE, OPTIM, train

GOLDEN = {3: 0.48535205, 6: 0.85073890}  # mean losses of batches 1-3 and 4-6, LPIPS among them, in the untrained network


def test_golden_loss(store, tmp_path):
    """Hardly an update in between: Adam's first steps turn the rounding of a processor's kernels into differences of 1e-3."""
    train(store, tmp_path, optim=replace(OPTIM, lr=1e-12))
    losses = {line["step"]: line["loss"] for line in read_log(tmp_path / LOG)}
    assert losses == pytest.approx(GOLDEN, rel=1e-5)


def test_artefact_names_its_inputs_and_how_to_build_the_model(trained, store):
    record = read_artefact(trained, KIND)
    assert record["model"]["design"]["network"] == NODE
    assert record["model"]["cameras"] == {"external": [32, 32], "wrist": [32, 32]}
    assert record["config"]["loss"]["_target_"] == "robowm.world_model.losses.TeacherForcing"
    assert record["config"]["loss"]["context_noise"] == 0.3
    assert list(record["inputs"]) == ["store0"] and record["fps"] == 10.0


def test_interrupted_training_ends_in_the_same_bits(trained, store, tmp_path, monkeypatch):
    from robowm.world_model import train as module

    fit = module.fit

    def stops_early(learner, *, steps, **rest):
        def batch(step):
            if step == 3:
                raise KeyboardInterrupt
            return learner.batch(step)

        return fit(replace(learner, batch=batch), steps=steps, **rest)

    monkeypatch.setattr(module, "fit", stops_early)
    with pytest.raises(KeyboardInterrupt):
        train(store, tmp_path / "wm")
    monkeypatch.setattr(module, "fit", fit)
    train(store, tmp_path / "wm")
    resumed, straight = load_file(tmp_path / "wm" / WEIGHTS), load_file(trained / WEIGHTS)
    assert resumed.keys() == straight.keys()
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)
    assert read_artefact(tmp_path / "wm", KIND)["fingerprint"] == read_artefact(trained, KIND)["fingerprint"]


def test_finished_folder_returns_at_once_and_another_request_is_refused(trained, store, monkeypatch):
    from robowm.world_model import train as module

    monkeypatch.setattr(module, "fit", None)
    assert train(store, trained)["step"] == 6
    with pytest.raises(UserError, match=r"context_noise"):
        train(store, trained, loss=TeacherForcing(context_noise=0.0))


def test_training_lowers_the_loss(store, tmp_path):
    train(store, tmp_path / "wm", steps=60, log_every=20, save_every=60, optim=replace(OPTIM, lr=3e-3), batch_size=8)
    first, _, last = (line["loss"] for line in read_log(tmp_path / "wm" / LOG))
    assert last < 0.5 * first


def test_wrong_settings_are_one_line(store, tmp_path):
    with pytest.raises(UserError, match=r"no camera 'wrists'; did you mean 'wrist'"):
        train(store, tmp_path / "a", world_model={"network": NODE, "cameras": ["wrists"]})
    with pytest.raises(UserError, match=r"pinned camera 'top' is not among"):
        train(store, tmp_path / "b", world_model={"network": NODE, "pinned": ["top"]})
    with pytest.raises(UserError, match=r"'os\.system'; only robowm\.\*"):
        train(store, tmp_path / "c", world_model={"network": {"_target_": "os.system"}})
    with pytest.raises(UserError, match=r"does not fit its settings .*chanels"):
        train(store, tmp_path / "d", world_model={"network": {**NODE, "chanels": [8]}})
    with pytest.raises(
        UserError, match=r"^world_model.chunk=40 needs clips of 40 steps, the longest episode of .*store has 20; set it to 20"
    ):
        train(store, tmp_path / "e", world_model={"network": NODE, "chunk": 40})
    with pytest.raises(UserError, match=r"lag=1 .* loss.own_levels=0.5"):
        train(store, tmp_path / "f", world_model={"network": NODE, "sampling_steps": 2, "lag": 1})


@pytest.mark.parametrize("depth", [0, -1, 1.5])
def test_a_depth_that_rolls_nothing_is_one_line(depth):
    for loss in (SelfForwarded, SelfRollout):
        with pytest.raises(UserError, match=rf"^loss.depth={depth}; .* at least 1, or take loss=teacher_forcing$"):
            loss(depth=depth)


def test_a_depth_that_no_episode_holds_is_one_line_that_names_the_most_that_fits(store, tmp_path):
    short = fake_store(tmp_path / "short", [9, 14]).path
    for loss, most in ((SelfRollout(depth=6, perceptual_weight=0), 5), (SelfForwarded(depth=5), 4)):
        found = rf"^loss.depth={loss.depth} needs clips of 24 steps, the longest episode of .*store has 20; set it to {most} at most"
        with pytest.raises(UserError, match=found):
            train(store, tmp_path / "wm", loss=loss)
        with pytest.raises(UserError, match=rf"the longest episode of .*short has 14; set it to {most - 2} at most"):
            train(store, tmp_path / "wm", loss=loss, more=[short])
    with pytest.raises(UserError, match="not even 1 fits"):
        train(store, tmp_path / "wm", loss=SelfForwarded(depth=1), world_model={"network": NODE, "chunk": 12})
    assert not (tmp_path / "wm").exists()
    train(store, tmp_path / "wm", steps=1, loss=SelfRollout(depth=5, perceptual_weight=0))


def test_a_stored_target_outside_the_trusted_packages_is_never_imported(trained, tmp_path):
    from robowm.world_model.model import rebuild

    facts = json.loads(json.dumps(read_artefact(trained, KIND)["model"]))
    facts["design"]["network"]["_target_"] = "antigravity.fly"
    import sys

    with pytest.raises(UserError, match=r"antigravity\.fly"):
        rebuild(facts)
    assert "antigravity" not in sys.modules


def test_a_finished_model_is_continued_with_its_weights_and_normalisers(trained, store, tmp_path):
    still = replace(OPTIM, lr=1e-12, weight_decay=0.0)
    train(store, tmp_path / "more", steps=2, init_from=trained, optim=still, seed=5)
    before, after = load_file(trained / WEIGHTS), load_file(tmp_path / "more" / WEIGHTS)
    assert all(torch.allclose(before[name], after[name], atol=1e-8) for name in before)
    one, two = read_artefact(trained, KIND), read_artefact(tmp_path / "more", KIND)
    assert two["inputs"]["init_from"] == one["fingerprint"] and two["model"]["state"] == one["model"]["state"]


def test_a_model_of_another_design_is_not_continued(trained, store, tmp_path):
    with pytest.raises(UserError, match=r"cannot be continued as asked: design.context: 2 -> 3"):
        train(store, tmp_path / "other", init_from=trained, world_model={"network": NODE, "context": 3})
