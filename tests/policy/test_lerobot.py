import numpy as np
import pytest
import torch

from robowm.data.fake import fake_spec
from robowm.data.sampler import ClipSampler
from robowm.diffusion.flow import velocity_from_x0
from robowm.errors import UserError
from robowm.policy.ddim import ddim_scheduler, sample_ddim
from robowm.policy.flow import sample_flow
from robowm.policy.lerobot import build, family
from robowm.policy.train import cloning_loss
from robowm.protocols import Denoiser, Policy
from robowm.rollout import run_episodes
from robowm.types import Obs
from tests.policy.helpers import (
    ACT,
    ACT_STATE,
    CAMERAS,
    RESNET,
    SMALL,
    STATE,
    VLA,
    ReplayEnv,
    completed,
    generators,
    make_policy,
    make_store,
)

KINDS = {"small": SMALL, "resnet": RESNET, "act": ACT_STATE, "state": STATE, "epsilon": SMALL | {"prediction_type": "epsilon"}, "vla": VLA}


@pytest.mark.parametrize("kind", KINDS)
def test_satisfies_the_policy_protocol_and_acts_in_the_units_of_the_data(kind, request):
    policy = make_policy(completed(KINDS[kind], request))
    assert isinstance(policy, Policy) and isinstance(policy, Denoiser) == (kind != "act")
    actions, memory = policy.act(ReplayEnv(3).reset([1, 2, 3]), policy.start(3), generators([1, 2, 3]))
    assert actions.shape == (3, 8, 5) and actions.dtype == np.float32 and np.isfinite(actions).all()
    normalizer = policy.normalizers.by_key["action"]
    if kind not in ("act", "vla"):  # diffusion clips to the range of the data
        assert (actions >= normalizer.low - 1e-5).all() and (actions <= normalizer.high + 1e-5).all()
    assert memory.state.shape[1] == len(family(policy.model).offsets(policy.model.config)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_actions_do_not_depend_on_how_episodes_are_batched(kind, request):
    policy, seeds = make_policy(completed(KINDS[kind], request), width=16), list(range(18))
    rolls = [
        {r.episode.source.seed: r.episode.action for r in run_episodes(ReplayEnv(n), policy, order, max_steps=16, kind="rollout")}
        for n, order in ((7, seeds), (18, seeds[::-1]))
    ]
    for seed in seeds:
        np.testing.assert_array_equal(rolls[0][seed], rolls[1][seed])
    assert not np.array_equal(rolls[0][3], rolls[0][8])


@pytest.mark.parametrize("width", [0, 4, 50])
def test_a_width_at_which_batching_could_matter_is_refused(width):
    with pytest.raises(UserError, match=f"infer_width={width}; use 1 .a robot. or a multiple of 16"):
        make_policy(width=width)


def test_memory_holds_the_last_rows_and_repeats_the_first_at_a_start():
    policy, env = make_policy(), ReplayEnv(2)
    first = env.reset([1, 2])
    memory = policy.remember(first, policy.start(2))
    np.testing.assert_array_equal(memory.state, first.state[:, [0, 0]])
    steps = env.step(np.zeros((2, 8, 5), np.float32), np.ones(2, bool))
    memory = policy.remember(steps.obs, memory)
    np.testing.assert_array_equal(memory.state, steps.obs.state[:, -2:])
    one = env.step(np.zeros((2, 1, 5), np.float32), np.ones(2, bool))
    after = policy.remember(one.obs, memory)
    np.testing.assert_array_equal(after.frames["wrist"][:, 0], memory.frames["wrist"][:, 1])
    np.testing.assert_array_equal(after.frames["wrist"][:, 1], one.obs.frames["wrist"][:, 0])


@pytest.mark.parametrize("kind", ["small", "vla"])
def test_its_clean_estimates_make_the_policys_own_actions(kind, request):
    policy = make_policy(completed(KINDS[kind], request))
    obs = ReplayEnv(16).reset(range(16))
    with torch.no_grad():
        context, noise = policy.encode(obs, None), policy.noise(generators(range(16)))
        if kind == "vla":
            sampled = sample_flow(lambda x, t: velocity_from_x0(x, policy.x0(x, t, context), t), noise, 4)
        else:
            scheduler = ddim_scheduler(policy.model.diffusion.noise_scheduler, 8)
            sampled = sample_ddim(lambda x, t: policy.x0(x, t, context), noise, scheduler)
    own, _ = policy.act(obs, None, generators(range(16)))
    actions = policy.family.ahead(policy.model.config, sampled)[:, :8]
    np.testing.assert_allclose(policy.normalizers.by_key["action"].unnormalize(actions).numpy(), own, atol=1e-6 if kind == "vla" else 0)
    assert kind == "vla" or policy.encode(obs, None).requires_grad  # guidance may differentiate through it


@pytest.mark.parametrize("kind", ["small", "resnet", "act", "state", "vla"])
def test_padded_targets_change_neither_loss_nor_gradient(kind, tmp_path, request):
    policy, results = make_policy(completed(KINDS[kind], request)), []
    make_store(tmp_path / "store")
    obs_offsets, action_offsets = family(policy.model).offsets(policy.model.config)
    options = {"obs_offsets": obs_offsets, "action_offsets": action_offsets, "batch_size": 6, "seed": 0}
    clips = ClipSampler([{"path": tmp_path / "store"}], cameras=policy.inputs.cameras, **options).batch(0)
    assert not clips.action_valid.all()
    policy.model.train()
    for rubbish in (0.0, 1e6):
        object.__setattr__(clips, "action", torch.where(clips.action_valid[..., None], clips.action, rubbish))
        policy.model.zero_grad()
        torch.manual_seed(0)
        loss, _ = cloning_loss(policy.normalizers, policy.inputs)(policy.model, clips, torch.Generator().manual_seed(0))
        loss.backward()
        results.append((loss.detach(), [p.grad.clone() for p in policy.model.parameters() if p.grad is not None]))
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


@pytest.mark.parametrize("kind", ["small", "resnet", "act"])
def test_without_padding_and_weights_the_loss_is_lerobots_own(kind):
    policy = make_policy(ACT if kind == "act" else KINDS[kind])
    config, generator = policy.model.config, torch.Generator().manual_seed(0)
    observations, horizon = family(policy.model).offsets(config)
    shape = (3, len(observations)) if kind != "act" else (3,)
    batch = {
        "observation.state": torch.randn(*shape, 5, generator=generator),
        "action": torch.randn(3, len(horizon), 5, generator=generator),
    }
    batch |= {f"observation.images.{camera}": torch.randn(*shape, 3, 32, 32, generator=generator) for camera in CAMERAS}
    batch["action_is_pad"] = torch.zeros(3, len(horizon), dtype=torch.bool)
    torch.manual_seed(5)
    theirs, _ = policy.model(batch)
    ours_batch = batch if kind != "act" else {k: v[:, None] if k.startswith("obs") else v for k, v in batch.items()}
    torch.manual_seed(5)
    ours, _ = family(policy.model).errors(policy.model, ours_batch, torch.default_generator)
    torch.testing.assert_close(ours.mean(), theirs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "difusion"}, "policy.type is 'difusion'; did you mean 'diffusion'"),
        ({"horizn": 8}, "policy.horizn is no setting of lerobot's 'robowm_diffusion'; did you mean 'horizon'"),
        ({"prediction_type": "v"}, "lerobot refuses these settings"),
        ({"cameras": ["external", "top"]}, "no camera 'top'"),
        ({"environment_state": True}, "must not see environment_state"),
    ],
)
def test_a_policy_that_cannot_be_built_is_refused_in_one_line(change, message):
    with pytest.raises(UserError, match=message):
        build(SMALL | change, fake_spec())


def test_another_task_camera_or_action_is_refused_naming_both():
    policy = make_policy()
    spec = fake_spec().to_json()
    policy.check(spec)
    with pytest.raises(UserError, match=r"cameras \{'external': \(32, 32\).*'wrist': \(64, 64\)"):
        policy.check(spec | {"cameras": {"external": [32, 32], "wrist": [64, 64]}})
    with pytest.raises(UserError, match=r"action_names \['x', .*found|here they are \['a'\]"):
        policy.check(spec | {"action_names": ["a"]})
    with pytest.raises(UserError, match="absolute, here they are delta"):
        policy.check(spec | {"action_kind": "delta"})
    obs = ReplayEnv(1).reset([0])
    with pytest.raises(UserError, match="wants cameras external 32x32, wrist 32x32, found external 32x32"):
        policy.act(Obs({"external": obs.frames["external"]}, obs.state, None, obs.task), None, generators([0]))
    with pytest.raises(UserError, match="found 3 numbers"):
        policy.act(Obs(obs.frames, obs.state[..., :3], None, obs.task), None, generators([0]))


def test_a_state_policy_says_what_it_misses():
    obs = ReplayEnv(1).reset([0])
    with pytest.raises(UserError, match="state policy"):
        make_policy(STATE).act(Obs(obs.frames, obs.state, None, obs.task), None, generators([0]))


@pytest.mark.parametrize("kind", ["small", "resnet"])
def test_more_actions_than_a_plan_holds_are_refused(kind):
    with pytest.raises(UserError, match="n_action_steps=16; only 15 actions of a plan lie ahead"):
        make_policy(KINDS[kind] | {"n_action_steps": 16})
