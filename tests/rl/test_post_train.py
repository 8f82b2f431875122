import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from robowm.artefacts import read_artefact
from robowm.data.fake import fake_spec, fake_store
from robowm.data.shares import StoreShare
from robowm.errors import UserError
from robowm.rl.experience import Sampling, gather
from robowm.rl.post_train import Nft, NftLoss, PostTrained, clips, run
from robowm.rl.reference import Reference
from robowm.train.log import LOG, read_log
from robowm.train.optim import OptimConfig
from robowm.train.weights import WEIGHTS
from robowm.world_model.losses import TeacherForcing, clip_rows
from robowm.world_model.predict import KIND, load_world_model
from robowm.world_model.train import run as train_world_model
from tests.fakes import masked_store

NODE = {"_target_": "robowm.nn.unet.VideoUNet", "channels": [16, 16], "condition": 32, "patch": 4}
HOW = Nft(Sampling(depth=1, candidates=4, best=1, worst=1, steps=2, reward={"psnr": 1 / 32, "ssim": 1.0}))
OPTIM = OptimConfig(lr=1e-3, warmup_steps=0, schedule="constant", ema=0.5)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rl")
    store = fake_store(folder / "store", [12, 15, 20]).path
    optim = OptimConfig(lr=1e-3, warmup_steps=2, ema=0.9)
    train_world_model(stores=[{"path": store}], world_model={"network": NODE}, output_dir=folder / "wm", steps=4, batch_size=2, optim=optim)
    return folder / "wm", store


@pytest.fixture
def parts(base):
    net = load_world_model(base[0], device="cpu").net
    with torch.no_grad():  # a model whose samples depend on the noise
        for p in net.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    return net, clips(net, [StoreShare(base[1])], 3, 0, HOW.sampling).batch(0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def post_train(base, folder, steps=4, **options):
    path, store = base
    given = {"nft": HOW, "batch_size": 2, "optim": OPTIM, "save_every": 2, "log_every": 1}
    return run(init_from=path, stores=[{"path": store}], output_dir=folder, steps=steps, **{**given, **options})


def test_experience_keeps_the_best_and_the_worst_of_each_group(parts):
    net, batch = parts
    experience, terms = gather(net, batch, HOW.sampling, generator())
    assert experience.sample.shape == (6, 4, net.layout.dim) and experience.context.rows.shape == (6, 3, net.layout.dim)
    assert (experience.r[::2] > 0.5).all() and (experience.r[1::2] < 0.5).all()
    groups = experience.context.rows.unflatten(0, (3, 2))
    assert torch.equal(groups[:, 0], groups[:, 1]), "candidates of a group share the history"
    assert not torch.equal(experience.sample[0], experience.sample[1])
    assert set(terms) == {"reward", "reward_std", "informative"} | {f"{m}/{c}" for m in ("psnr", "ssim") for c in ("external", "wrist")}


def test_the_history_starts_from_one_true_observation(parts):
    net, batch = parts
    rows, _ = clip_rows(net, batch)
    how = replace(HOW.sampling, depth=0)
    experience, _ = gather(net, batch, how, generator())
    assert torch.equal(experience.context.rows[::2, 1], rows[:, 2]) and torch.equal(experience.context.rows[::2, 2], rows[:, 2])


def test_groups_whose_candidates_hardly_differ_teach_nothing(parts):
    net, batch = parts
    experience, terms = gather(net, batch, replace(HOW.sampling, smallest_std=1e6), generator())
    assert not experience.valid.any() and terms["informative"] == 0
    model = PostTrained(copy.deepcopy(net))
    loss, _ = NftLoss(replace(HOW, sampling=replace(HOW.sampling, smallest_std=1e6)))(model, batch, generator())
    loss.backward()
    assert float(loss.detach()) == 0 and all((p.grad == 0).all() for p in model.theta.parameters() if p.grad is not None)


def test_rewards_can_be_random_as_a_control(parts):
    net, batch = parts
    control = replace(HOW.sampling, reward={"psnr": 0.0}, reward_noise=1.0)
    (one, terms), (two, _) = (gather(net, batch, control, generator(seed)) for seed in (0, 0))
    assert torch.equal(one.r, two.r) and terms["reward_std"] > 0.1 and "psnr/wrist" in terms


def test_old_follows_theta_and_differs_from_it_after_a_step(parts):
    net, _ = parts
    model = PostTrained(copy.deepcopy(net))
    model.follow(HOW)
    model.updates += 1
    with torch.no_grad():
        for p in model.theta.parameters():
            p.add_(1.0)
    name, theta = next(iter(model.theta.named_parameters()))
    before = dict(model.old.named_parameters())[name].clone()
    model.follow(HOW)
    after = dict(model.old.named_parameters())[name]
    torch.testing.assert_close(after, before + 0.5)
    assert not torch.equal(after, theta) and torch.equal(dict(model.ref.named_parameters())[name], before)


def test_staying_near_the_reference_costs_what_was_gained(parts):
    net, batch = parts
    model = PostTrained(copy.deepcopy(net))
    with torch.no_grad():
        for p in model.theta.parameters():
            p.add_(0.01)
    free, terms = NftLoss(HOW)(model, batch, generator())
    bound, held = NftLoss(replace(HOW, reference=Reference(weight=2.0)))(model, batch, generator())
    assert "reference" not in terms and held["reference"] > 0
    assert float(bound.detach()) > float(free.detach())


def nudge(model, size=0.01):
    with torch.no_grad():
        for p in model.theta.parameters():
            p.add_(size)


def test_only_candidates_that_the_main_metric_overrates_are_held_near_the_reference(parts):
    net, batch = parts
    how = replace(HOW, sampling=replace(HOW.sampling, main="psnr", candidates=8, best=3, worst=3), reference=Reference(weight=2.0))
    model = PostTrained(copy.deepcopy(net))
    nudge(model)
    _, terms = NftLoss(how)(model, batch, generator())
    experience, _ = model.held
    assert 0 < experience.near.sum() < len(experience.near) / 2
    assert experience.overrated[experience.near].min() > 0
    assert 0 < terms["reference"] < terms["distance"] and terms["held"] == experience.near.float().mean()
    _, all_held = NftLoss(replace(how, sampling=replace(how.sampling, main=None)))(model, batch, generator())
    torch.testing.assert_close(all_held["reference"], all_held["distance"])


def test_the_reference_follows_once_it_is_far_away(parts):
    net, batch = parts
    for limit, follows in ((1e-9, True), (1e9, False)):
        model, how = PostTrained(copy.deepcopy(net)), replace(HOW, reference=Reference(weight=1.0, limit=limit))
        nudge(model)
        first = NftLoss(how)(model, batch, generator())[1]["distance"]
        second = NftLoss(how)(model, batch, generator())[1]["distance"]
        assert first > 0 and (second == 0) == follows and (model.age == 1) == follows


def test_advantages_may_be_kept_apart_until_they_are_mixed(parts):
    net, batch = parts
    apart, alone = (
        gather(net, batch, replace(HOW.sampling, mix=mix), generator())[0] for mix in ({"ssim": 1.0, "psnr": 1.0}, {"ssim": 1.0})
    )
    only_ssim, _ = gather(net, batch, replace(HOW.sampling, reward={"ssim": 1.0}), generator())
    torch.testing.assert_close(alone.r, only_ssim.r, atol=1e-3, rtol=0)
    assert not torch.allclose(apart.r, alone.r)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"mix": {"lpips": 1.0}}, "'lpips' is no metric of the reward"),
        ({"main": "psrn"}, "did you mean 'psnr'"),
        ({"reward": {"psnr": 1.0}, "main": "psnr"}, "no other metric"),
    ],
)
def test_metrics_that_the_reward_lacks_are_refused(change, line):
    with pytest.raises(UserError, match=line):
        replace(HOW.sampling, **change)


def test_a_round_of_candidates_serves_several_updates(base, tmp_path, parts):
    net, batch = parts
    model, loss = PostTrained(copy.deepcopy(net)), NftLoss(replace(HOW, reuse=2))
    held = []
    for step in range(4):
        loss(model, batch, generator(step))
        held.append(model.held[0].sample)
    assert held[0] is held[1] and held[2] is held[3] and not torch.equal(held[1], held[2])
    with pytest.raises(UserError, match=r"save_every=3 with nft\.reuse=2"):
        post_train(base, tmp_path / "no", nft=loss.how, save_every=3)


def test_updates_raise_the_reward_of_what_was_better(parts):
    """One update on one batch: the best candidates become likelier against the worst under the same noise."""
    net, batch = parts
    model, loss = PostTrained(copy.deepcopy(net)), NftLoss(HOW)
    optimiser = torch.optim.SGD(model.theta.parameters(), lr=1e-3)
    experience, _ = gather(model.old, batch, HOW.sampling, generator())

    def gap():
        with torch.no_grad():
            x = torch.randn(experience.sample.shape, generator=generator(5))
            x0 = model.theta.x0(x, torch.ones(x.shape[:2]), experience.context)
            error = (x0 - experience.sample).square().mean((1, 2))
            return float((error[1::2] - error[::2]).mean())

    before = gap()
    for _ in range(5):
        optimiser.zero_grad()
        loss(model, batch, generator())[0].backward()
        optimiser.step()
    assert gap() > before


def test_becomes_a_world_model_that_samples_as_it_was_trained(base, tmp_path):
    last = post_train(base, tmp_path / "rl")
    record = read_artefact(tmp_path / "rl", KIND)
    assert record["inputs"]["init_from"] == read_artefact(base[0], KIND)["fingerprint"]
    assert load_world_model(tmp_path / "rl", device="cpu").net.design.sampling_steps == 2
    assert {"nft", "reward", "reward_std"} <= set(last) and "reference" not in last
    names = set(load_file(tmp_path / "rl" / WEIGHTS))
    assert names == set(load_file(base[0] / WEIGHTS)), "old and reference copies stay out of the weights"


@pytest.mark.parametrize("reuse", [1, 2])
def test_killed_and_resumed_it_ends_in_the_same_bits(base, tmp_path, monkeypatch, reuse):
    from robowm.rl import post_train as module

    sampling = replace(HOW.sampling, main="psnr")
    nft = replace(HOW, reuse=reuse, sampling=sampling, reference=Reference(weight=0.1, every=1))
    post_train(base, tmp_path / "straight", nft=nft)
    fit = module.fit

    def stops(learner, **rest):
        def batch(step):
            if step == 3:
                raise KeyboardInterrupt
            return learner.batch(step)

        return fit(replace(learner, batch=batch), **rest)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(module, "fit", stops)
        post_train(base, tmp_path / "cut", nft=nft)
    post_train(base, tmp_path / "cut", nft=nft)
    one, two = (load_file(tmp_path / name / WEIGHTS) for name in ("straight", "cut"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    strip = lambda lines: [{k: v for k, v in line.items() if k not in ("steps_per_s", "memory_mib")} for line in lines]  # noqa: E731
    logs = [strip(read_log(tmp_path / name / LOG)) for name in ("straight", "cut")]
    assert json.dumps(logs[0][-1]) == json.dumps(logs[1][-1])


def test_small_pictures_are_told_which_reward_to_take(base, tmp_path):
    store = fake_store(tmp_path / "store", [12, 15], spec=fake_spec({"external": (16, 16)})).path
    node, design = {**NODE, "patch": 2}, {"pinned": []}
    with pytest.raises(UserError, match=r"found 16x16; set loss.perceptual_weight=0"):
        train_world_model(stores=[{"path": store}], world_model={"network": node, **design}, output_dir=tmp_path / "no", steps=2)
    plain = TeacherForcing(perceptual_weight=0)
    train_world_model(stores=[{"path": store}], world_model={"network": node, **design}, output_dir=tmp_path / "wm", steps=2, loss=plain)
    with pytest.raises(UserError, match=r"16x16; set reward=pixels"):
        post_train((tmp_path / "wm", store), tmp_path / "rl", nft=Nft(Sampling(depth=1)))


def test_masked_terms_rank_candidates_by_the_object_alone(parts, tmp_path):
    net, _ = parts
    share = StoreShare(masked_store(tmp_path / "store", [12, 15, 20]).path)
    how = replace(HOW.sampling, reward={"psnr_object": 1.0, "psnr": 0.0})
    assert set(clips(net, [share], 3, 0, HOW.sampling).batch(0).frames) == {"external", "wrist"}, "masks are read where they are asked for"
    batch = clips(net, [share], 3, 0, how).batch(0)
    assert set(batch.frames) == {"external", "wrist", "external_mask", "wrist_mask"}
    experience, terms = gather(net, batch, how, generator())
    assert {f"{m}/{c}" for m in ("psnr", "psnr_object") for c in ("external", "wrist")} < set(terms)
    assert all(math.isfinite(term) for term in terms.values()) and terms["reward_std"] > 0
    by_frame, _ = gather(net, batch, replace(HOW.sampling, reward={"psnr": 1.0}), generator())
    assert not torch.equal(experience.sample, by_frame.sample), "another reward keeps other candidates"


def test_a_term_that_no_frame_shows_is_not_logged_and_the_total_is_finite(parts, tmp_path):
    net, _ = parts
    share = StoreShare(masked_store(tmp_path / "store", [12, 15], unseen=2).path)
    how = replace(HOW.sampling, reward={"psnr_object": 1.0})
    experience, terms = gather(net, clips(net, [share], 3, 0, how).batch(0), how, generator())
    assert "psnr_object/wrist" not in terms and terms["psnr_object/external"] > 0 and experience.r.isfinite().all()


def test_a_store_without_masks_is_told_how_to_get_them(base, tmp_path):
    from robowm.errors import UserError

    nft = replace(HOW, sampling=replace(HOW.sampling, reward={"psnr_gripper": 1.0}))
    with pytest.raises(UserError, match=r"has no masks \(external_mask\); record it with env.masks=true"):
        post_train(base, tmp_path / "rl", nft=nft)


def test_post_training_on_masked_terms_logs_them_and_keeps_masks_out_of_the_model(base, tmp_path):
    store = masked_store(tmp_path / "store", [12, 15]).path
    nft = replace(HOW, sampling=replace(HOW.sampling, reward={"psnr": 0.03, "psnr_object": 0.03, "psnr_gripper": 0.03}))
    last = post_train((base[0], store), tmp_path / "rl", steps=2, nft=nft)
    assert {"psnr_object/external", "psnr_gripper/wrist", "psnr/wrist"} <= set(last)
    assert list(load_world_model(tmp_path / "rl", device="cpu").net.layout.cameras) == ["external", "wrist"]


def test_a_depth_that_no_episode_holds_is_one_line_that_names_the_most_that_fits(base, tmp_path):
    found = r"^nft.sampling.depth=5 needs clips of 24 steps, the longest episode of .*store has 20; set it to 4 at most"
    with pytest.raises(UserError, match=found):
        post_train(base, tmp_path / "rl", nft=replace(HOW, sampling=replace(HOW.sampling, depth=5)))
    assert not (tmp_path / "rl").exists()
    for depth in (-1, 0.5):
        with pytest.raises(UserError, match=rf"nft.sampling: depth={depth} "):
            replace(HOW.sampling, depth=depth)
