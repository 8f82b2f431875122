"""Where candidates come from, and what they are judged by: each part pinned to the depth of the self-made history."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from robowm.data.shares import StoreShare
from robowm.errors import UserError
from robowm.rl import experience as module
from robowm.rl.experience import Sampling, gather
from robowm.rl.post_train import Nft, NftLoss, PostTrained, clips
from robowm.rl.reference import Reference
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


def test_training_memory_does_not_grow_with_the_history(parts, base, monkeypatch):  # noqa: F811
    """The history has no graph, the sampler sees a chunk and a context of one size at every depth, the graph is the last chunk's."""
    found = {}
    for depth in (1, 3):
        model = PostTrained(copy.deepcopy(parts[0]))
        model.old.requires_grad_(True)  # as strict as it gets: whatever the old copy computed with gradient would be kept
        how = replace(HOW, sampling=replace(HOW.sampling, depth=depth))
        batch = clips(model.theta, [StoreShare(base[1])], 3, 0, how.sampling).batch(0)
        sizes, graphs, saved, real = set(), [], [], model.old.x0

        def records(x, level, context, sizes=sizes, graphs=graphs, real=real):
            sizes.add((x[0].numel(), context.rows[0].numel(), context.level[0].numel(), context.action[0].numel()))
            graphs.append(torch.is_grad_enabled())
            return real(x, level, context)

        monkeypatch.setattr(model.old, "x0", records)
        with torch.autograd.graph.saved_tensors_hooks(lambda x, saved=saved: saved.append(x.numel()) or x, lambda x: x):
            loss, _ = NftLoss(how)(model, batch, generator(seed_of_depth(depth, depth)))
        kept = [model.held[0].sample, model.held[0].context.rows, model.held[0].context.action]
        assert loss.requires_grad and not any(graphs) and not any(x.requires_grad for x in kept)
        found[depth] = sizes, sum(saved), [x.shape for x in kept], len(graphs)
    assert found[1][:3] == found[3][:3] and found[1][1] > 0
    assert found[3][3] == found[1][3] + 2 * HOW.sampling.steps, "two chunks more were rolled"


def test_the_true_clip_is_never_among_the_candidates(parts, monkeypatch):  # noqa: F811
    net, batch = parts
    seen, real, made = [], module.score, module.sample
    monkeypatch.setattr(
        module, "score", lambda net, candidates, truth, *rest: seen.append((candidates, truth)) or real(net, candidates, truth, *rest)
    )
    outputs = []
    monkeypatch.setattr(module, "sample", lambda *given, **more: outputs.append(made(*given, **more)) or outputs[-1])
    gather(net, batch, HOW.sampling, generator())
    ((candidates, truth),) = seen
    sampled = net.layout.rounded(outputs[-1]).unflatten(0, (-1, HOW.sampling.candidates))
    assert torch.equal(candidates, sampled) and not (candidates == truth[:, None]).flatten(2).all(-1).any()


def test_rewards_are_weighed_as_asked(parts, monkeypatch):  # noqa: F811
    net, batch = parts
    seen, real = [], module.score
    monkeypatch.setattr(module, "score", lambda *given: seen.append(real(*given)) or seen[-1])
    gather(net, batch, replace(HOW.sampling, reward={"psnr": 0.25, "ssim": 3.0}), generator())
    ((reward, terms),) = seen
    mean = {metric: (terms[f"{metric}/external"] + terms[f"{metric}/wrist"]) / 2 for metric in ("psnr", "ssim")}
    torch.testing.assert_close(reward, 0.25 * mean["psnr"] + 3 * mean["ssim"])


def test_advantages_are_clipped_as_asked(parts):  # noqa: F811
    net, batch = parts
    narrow, wide = (gather(net, batch, replace(HOW.sampling, clip=clip), generator())[0].r for clip in (1e-6, 1e6))
    assert set(narrow.tolist()) <= {0.0, 1.0} and ((wide - 0.5).abs() < 1e-4).all()


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
        ({"reward": {"psnr_objct": 1.0}}, "did you mean 'psnr_object'"),
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


@pytest.mark.parametrize(("name", "value"), [("every", 0), ("every", -3), ("limit", 0.0), ("limit", -1.0)])
def test_a_reference_that_is_always_the_model_is_refused(name, value):
    with pytest.raises(UserError, match=rf"nft\.reference\.{name}={value}"):
        Reference(weight=1.0, **{name: value})
