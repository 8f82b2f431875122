"""Critics learn what can be told from a state, say how well on held-out episodes, and their weights reach training."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robowm.artefacts import read_artefact
from robowm.data.fake import fake_episode, fake_spec
from robowm.data.sidecar import read_sidecar, write_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.habc.credit import NEVER, Credit
from robowm.habc.critics import CriticLoss, Critics, bootstrap, monte_carlo
from robowm.habc.rivals import iwr
from robowm.habc.states import States, StateSampler
from robowm.habc.train import load_critics, measure, run
from robowm.habc.weigh import run as weigh
from robowm.habc.weights import habc
from robowm.policy.train import run as train_policy
from robowm.train.learner import Learner, fit
from robowm.train.optim import OptimConfig
from robowm.types import Controller
from tests.policy.helpers import OPTIM, STATE

CHUNK = 4


def line(length, success, seed, chunk=CHUNK):
    """An episode on a line: latents (place, goodness, noise); the goal is reached at the end of a success."""
    rng = np.random.default_rng(seed)
    times = np.arange(length + 1)
    latent = np.stack([1 - times / 40, np.full(length + 1, success - 0.5), rng.normal(0, 1, length + 1)], 1).astype(np.float32)
    togo = length - np.arange(length)
    span = np.minimum(togo, chunk)
    return latent, Credit(
        role=np.zeros(length, np.int8),
        until_takeover=togo,
        outcome=np.full(length, success, np.float32),
        timed=np.full(length, bool(success)),
        togo=togo,
        span=span,
        arrives=(span == togo) & bool(success),
    )


def states(seeds, chunk=CHUNK):
    return States.of([[line(40, float(seed % 3 > 0), seed, chunk) for seed in seeds]], [1.0], chunk)


@pytest.mark.parametrize(("target", "chunk"), [(monte_carlo, CHUNK), (bootstrap, 20)])
def test_critics_learn_who_succeeds_and_how_soon(target, chunk, tmp_path):
    training = states(range(12), chunk)
    torch.manual_seed(0)
    learner = Learner(Critics(3, chunk, width=32, dropout=0.0), StateSampler(training, 64, 0).batch, CriticLoss(target))
    optim = OptimConfig(lr=3e-3, weight_decay=0.0, betas=(0.9, 0.99), warmup_steps=10, ema=0.99)
    net = fit(learner, steps=500, optim=optim, seed=0, output_dir=tmp_path, device="cpu", precision="fp32", log_every=250)
    found = measure(net, states(range(100, 106), chunk))
    assert found["auc"] == 1.0 and found["ece"] < 0.1 and found["correlation"] > 0.95
    assert found["error_steps"] < 4 and found["held_out_steps"] == 240


def test_steps_after_the_goal_do_not_help_to_rank_what_is_still_ahead():
    def episode(success):  # which only shows once the goal holds, half-way
        latent, credit = line(20, success, 0)
        latent[:, 1] = success * (np.arange(21) >= 10)
        return latent[:, 1:2], replace(credit, togo=np.maximum(10 - np.arange(20), 0) if success else np.full(20, NEVER))

    class Seen(torch.nn.Module):
        chunk = CHUNK

        def forward(self, latent):
            return latent[:, 0], -latent[:, 0]

    found = measure(Seen(), States.of([[episode(0.0), episode(1.0)]], [1.0], CHUNK))
    assert found["auc"] == pytest.approx(0.75) and found["auc_ahead"] == pytest.approx(0.5)


def test_the_bootstrapped_target_is_the_cost_of_the_window_and_the_estimate_behind_it():
    batch = StateSampler(states(range(3)), 16, 0).batch(0)
    net = Critics(3, CHUNK)
    assert torch.equal(bootstrap(net, batch), -batch.span) and net.training  # a fresh network says 0
    torch.nn.init.constant_(net.heads.last[-1].bias, -2.0)
    torch.testing.assert_close(bootstrap(net, batch), -batch.span - 2.0 * ~batch.arrives)
    assert not bootstrap(net, batch).requires_grad
    assert torch.equal(monte_carlo(net, batch), -batch.togo) and (batch.span <= 1).all() and batch.arrives.any()


def test_stores_are_drawn_by_their_shares_and_one_without_labels_leaves_its_own():
    some = [[line(40, 1.0, 0)], [line(10, 0.0, 1)], [line(5, 1.0, 2)]]
    unlabelled = replace(some[2][0][1], outcome=np.full(5, np.nan, np.float32), timed=np.zeros(5, bool))
    found = States.of([*some[:2], [(some[2][0][0], unlabelled)]], [1.0, 3.0, 5.0], CHUNK)
    assert found.judged_odds[:40].sum() == pytest.approx(0.25) and found.judged_odds[40:].sum() == pytest.approx(0.75)
    assert len(found.judged) == 50 and found.timed_odds.sum() == pytest.approx(1.0)
    assert np.array_equal(found.judged[40:], np.arange(41, 51))  # 41 states of the first episode come before


def test_without_a_success_there_is_nothing_to_time_and_viability_still_learns():
    batch = StateSampler(States.of([[line(10, 0.0, 0)]], [1.0], CHUNK), 8, 0).batch(0)
    loss, terms = CriticLoss(monte_carlo)(Critics(3, CHUNK), batch, torch.Generator())
    loss.backward()
    assert terms["efficiency"] == 0 and float(terms["viability"]) == pytest.approx(np.log(2))


# ---------------------------------------------------------------------- both verbs, on a real policy


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A policy, and ten of its rollouts, two of which a person took over."""
    root = tmp_path_factory.mktemp("habc")
    demos = EpisodeStore.create(root / "demos", fake_spec())
    demos.append(fake_episode(fake_spec(), 30, 1))
    options = {"optim": OPTIM, "batch_size": 4, "seed": 0, "device": "cpu", "precision": "fp32"}
    train_policy(stores=[{"path": demos.path}], policy=STATE, steps=1, output_dir=root / "base", **options)
    name = "state-" + read_artefact(root / "base")["fingerprint"]
    rollouts = EpisodeStore.create(root / "rollouts", fake_spec())
    for seed in range(10):
        episode = fake_episode(fake_spec(), 20, 10_000 + seed, success=float(seed % 2), kind="rollout")
        controller = episode.controller.copy()
        controller[12:16] = Controller.HUMAN_RECOVERY if seed > 7 else Controller.POLICY
        segment = np.cumsum(np.diff(controller, prepend=controller[:1]) != 0).astype(np.int32)
        source = replace(episode.source, policy=f"{name}-steps2")
        rollouts.append(replace(episode, controller=controller, segment=segment, source=source))
    return root


def train(base, output_dir, **options):
    settings = {"steps": 3, "width": 16, "batch_size": 16, "device": "cpu", "precision": "fp32", "holdout": 0.3} | options
    return run(encoder=base / "base", stores=[{"path": base / "demos"}, {"path": base / "rollouts"}], output_dir=output_dir, **settings)


@pytest.fixture(scope="module")
def critics(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("critics")
    train(base, folder)
    return folder


def test_the_artefact_says_how_far_critics_can_be_trusted(base, critics):
    record = read_artefact(critics, "critics")
    found = record["measured"]
    assert {"auc", "ece", "reliability", "correlation", "auc_training"} <= found.keys() and 0 <= found["ece"] <= 1
    assert sum(store["held_out_steps"] for store in found["stores"]) == found["held_out_steps"]
    # 8 whole episodes and 4 steps after each of two take-overs
    assert found["labelled_steps"] + found["held_out_steps"] == 8 * 20 + 2 * 4 and found["held_out_steps"] > 0
    assert record["network"]["chunk"] == 8 and record["inputs"]["policy"].startswith("state-")
    assert train(base, critics) == found
    with pytest.raises(UserError, match="margin"):
        train(base, critics, margin=3)


def test_outcomes_of_another_policy_do_not_count_unless_asked_for(base, tmp_path):
    other = EpisodeStore.create(tmp_path / "other", fake_spec())
    for seed in range(4):
        other.append(fake_episode(fake_spec(), 20, 10_000 + seed, success=float(seed % 2), kind="rollout"))
    options = {"encoder": base / "base", "stores": [{"path": other.path}], "steps": 1, "holdout": 0.0, "device": "cpu"}
    with pytest.raises(UserError, match=r"rollouts there are by fake; .* any_policy=true"):
        run(output_dir=tmp_path / "strict", **options)
    assert run(output_dir=tmp_path / "any", any_policy=True, **options)["labelled_steps"] == 80


def test_viability_learns_from_the_stores_that_are_named_and_efficiency_from_all(base, tmp_path):
    rollouts, watched = EpisodeStore.open(base / "rollouts"), EpisodeStore.create(tmp_path / "watched", fake_spec())
    for i in range(1, 10, 2):  # what was about to fail was rescued: successes alone are left
        watched.append(rollouts.episode(i))
    stores = [{"path": rollouts.path}, {"path": watched.path}]
    options = {"encoder": base / "base", "stores": stores, "steps": 1, "holdout": 0.0, "device": "cpu"}
    every = run(output_dir=tmp_path / "every", **options)
    some = run(output_dir=tmp_path / "some", outcomes_of=[rollouts.path], **options)
    assert some["labelled_steps"] == 8 * 20 + 2 * 4 and every["labelled_steps"] == some["labelled_steps"] + 4 * 20 + 4
    assert some["successes"] == every["successes"] == 10
    assert read_artefact(tmp_path / "some")["config"]["outcomes_of"] == [True, False]
    with pytest.raises(UserError, match="outcomes_of names elsewhere, which is none of the stores"):
        run(output_dir=tmp_path / "none", outcomes_of=["elsewhere"], **options)


def test_weights_lie_beside_each_store_and_reach_training(base, critics, tmp_path):
    stores = [{"path": base / "demos"}, {"path": base / "rollouts"}]
    found = weigh(stores=stores, critics=critics, output_dir=tmp_path / "habc", weighting=habc, name="habc", margin=5, device="cpu")
    demos, rollouts = (EpisodeStore.open(base / name) for name in ("demos", "rollouts"))
    assert (read_sidecar(demos, "habc")["weight"] == 1).all()
    arrays = read_sidecar(rollouts, "habc")
    weight = arrays["weight"].reshape(10, 20)
    assert (weight[0:8:2] == 0).all() and (weight[1:8:2] > 0).all()  # failures, successes
    assert (weight[8:, 7:12] == 0).all() and (weight[9, :7] > 0).all()  # a margin before take-overs
    assert (weight[8, 12:16] > 0).all() and (weight[8, :7] == 0).all()  # a person's steps count in a failure too
    kept = np.ones_like(weight, bool)
    kept[8:, 7:12] = False
    assert weight[kept].mean() == pytest.approx(1.0, abs=1e-5) and found["dropped"] == pytest.approx(10 / 230)
    assert {"saturated", "clipped", "effective_share", "mean_gate"} <= found.keys() and 0 < found["effective_share"] < 1
    assert ((arrays["viability"] > 0) & (arrays["viability"] < 1)).all()
    options = {"optim": OPTIM, "batch_size": 4, "seed": 0, "device": "cpu", "precision": "fp32", "log_every": 1}
    shares = [{"path": base / "rollouts", "weights": "habc"}]
    last = train_policy(stores=shares, init_from=base / "base", steps=1, output_dir=tmp_path / "better", **options)
    assert last["effective_share"] < 1 and "store0.weights" in read_artefact(tmp_path / "better")["inputs"]


def test_a_sidecar_written_anew_is_noticed(base, tmp_path):
    options = {"stores": [base / "rollouts"], "weighting": iwr, "name": "again", "margin": 0}
    found = weigh(output_dir=tmp_path, **options)
    assert weigh(output_dir=tmp_path, **options) == found
    rollouts = EpisodeStore.open(base / "rollouts")
    write_sidecar(rollouts, "again", {"weight": np.zeros(200, np.float32)})
    with pytest.raises(UserError, match="was written anew"):
        weigh(output_dir=tmp_path, **options)


def test_critics_of_another_encoder_are_refused(base, critics, tmp_path):
    options = {"optim": OPTIM, "batch_size": 4, "seed": 1, "device": "cpu", "precision": "fp32"}
    train_policy(stores=[{"path": base / "demos"}], policy=STATE, steps=1, output_dir=tmp_path / "other", **options)
    with pytest.raises(UserError, match="was trained on the encoder of policy"):
        load_critics(critics, tmp_path / "other", "cpu")
    with pytest.raises(UserError, match="has no key 'share'"):
        weigh(stores=[{"path": base / "demos", "share": 1}], output_dir=tmp_path / "x", weighting=iwr, name="x")
