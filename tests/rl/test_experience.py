"""Where candidates come from, and what they are judged by: each part pinned to the depth of the self-made history."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from robowm.errors import UserError
from robowm.rl import experience as module
from robowm.rl.experience import Sampling, gather
from robowm.rl.post_train import Nft, NftLoss, PostTrained
from robowm.world_model.losses import clip_rows
from tests.rl.test_post_train import HOW, base, generator, nudge, parts  # noqa: F401


def seed_of_depth(depth, most):
    """Return a seed whose generator draws ``depth`` chunks of history first."""
    return next(s for s in range(100) if int(torch.randint(0, most + 1, (), generator=generator(s))) == depth)


@pytest.mark.parametrize("depth", [0, 1])
def test_candidates_get_the_actions_and_the_truth_that_follow_their_history(parts, monkeypatch, depth):  # noqa: F811
    net, batch = parts
    rows, action = clip_rows(net, batch)
    size, count, judged = net.design.chunk, net.context_rows, []
    real = module.score

    def watched(net, candidates, truth, *rest):
        judged.append(truth)
        return real(net, candidates, truth, *rest)

    monkeypatch.setattr(module, "score", watched)
    found, _ = gather(net, batch, HOW.sampling, generator(seed_of_depth(depth, HOW.sampling.depth)))
    begin = depth * size
    assert not torch.equal(action[:, :size], action[:, size : 2 * size])
    assert torch.equal(found.context.action[::2], action[:, begin : begin + size])
    assert torch.equal(judged[0], rows[:, count + begin : count + begin + size])


def test_the_old_policy_makes_the_candidates(parts):  # noqa: F811
    net, batch = parts
    model = PostTrained(copy.deepcopy(net))
    nudge(model, 0.05)  # theta is elsewhere
    NftLoss(HOW)(model, batch, generator())
    wanted, _ = gather(model.old, batch, HOW.sampling, generator())
    other, _ = gather(model.theta, batch, HOW.sampling, generator())
    assert torch.equal(model.held[0].sample, wanted.sample) and not torch.equal(wanted.sample, other.sample)


@pytest.mark.parametrize("d", [0.25, 0.9])
def test_old_keeps_the_share_d_of_itself(parts, d):  # noqa: F811
    net, _ = parts
    model = PostTrained(copy.deepcopy(net))
    model.updates += 1
    nudge(model, 1.0)
    name, theta = next(iter(model.theta.named_parameters()))
    before = dict(model.old.named_parameters())[name].clone()
    model.follow(replace(HOW, decay_first=d, decay_limit=d))
    torch.testing.assert_close(dict(model.old.named_parameters())[name], d * before + (1 - d) * theta)


def test_rows_that_are_finished_are_not_learned_from(parts):  # noqa: F811
    net, batch = parts
    model, loss = PostTrained(copy.deepcopy(net)), NftLoss(HOW)
    nudge(model)
    model.held = loss.round(model, batch, generator())
    experience, _ = model.held
    lagged = torch.tensor([0.0, 0.0, 0.5, 1.0])
    assert experience.sample.shape[1] == len(lagged)
    errors = loss.at_levels(model, experience, lagged, generator(3))["nft"]
    late = replace(experience, valid=experience.valid & (lagged > 0))
    torch.testing.assert_close(errors, loss.at_levels(model, late, lagged, generator(3))["nft"])
    early = replace(experience, valid=experience.valid & (lagged == 0))
    assert loss.at_levels(model, early, lagged, generator(3))["nft"].item() == 0


def test_a_longer_history_keeps_no_graph_and_passes_on_as_much(parts):  # noqa: F811
    net, batch = parts
    shallow, deep = (
        gather(net, batch, HOW.sampling, generator(seed_of_depth(depth, HOW.sampling.depth)))[0].context.rows for depth in (0, 1)
    )
    assert shallow.shape == deep.shape and not shallow.requires_grad and not deep.requires_grad


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"candidates": 1}, "candidates=1"),
        ({"candidates": 3, "best": 2, "worst": 2}, "best=2 and worst=2 of candidates=3"),
        ({"best": 0}, "best=0"),
        ({"clip": 0.0}, "clip=0.0"),
        ({"depth": -1}, "depth=-1"),
        ({"steps": 0}, "steps=0"),
        ({"reward_noise": math.inf}, "reward_noise=inf"),
        ({"reward": {"psnr": math.nan}}, r"reward\.psnr=nan"),
        ({"reward": {"psnr": 1.0, "ssim": 1.0}, "mix": {"ssim": 1.0, "psnr": -1.0}}, "at least 0"),
        ({"mix": {}}, "one is above"),
    ],
)
def test_numbers_of_the_sampling_that_make_no_sense_are_refused(change, line):
    with pytest.raises(UserError, match=line):
        Sampling(**change)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"beta": 0.0}, r"nft\.beta=0\.0"),
        ({"reuse": 0}, r"nft\.reuse=0"),
        ({"decay_first": 1.5}, r"decay_first=1\.5"),
        ({"decay_limit": 1.5}, r"decay_limit=1\.5"),
        ({"decay_growth": -0.1}, r"decay_growth=-0\.1"),
    ],
)
def test_numbers_of_the_loss_that_make_no_sense_are_refused(change, line):
    with pytest.raises(UserError, match=line):
        Nft(**change)
