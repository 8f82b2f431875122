"""The guided policy is the policy itself where nothing guides, and tells what it did where something does."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robowm.data.fake import fake_episode, fake_spec
from robowm.guidance.dynamics import LatentDynamics
from robowm.guidance.guided import GuidedPolicy
from robowm.guidance.lpb import Lpb
from robowm.guidance.pcg import Pcg
from robowm.guidance.phases import find_phases
from robowm.guidance.targets import Targets
from robowm.policy.latents import Latents
from robowm.protocols import Policy, Tells
from robowm.rollout import run_episodes
from robowm.types import Controller
from tests.policy.helpers import RESNET, SMALL, STATE, VLA, ReplayEnv, completed, generators, make_policy

KINDS = {"small": SMALL, "resnet": RESNET, "state": STATE, "vla": VLA}
ALWAYS = Pcg(scale=0.5, noisiest=1.0, lower=None, upper=None, switch=10)


def make_guided(node=SMALL, guide=ALWAYS, change=0.3):
    policy = make_policy(node)
    latents = Latents(policy)
    episodes = [latents.of_episode(fake_episode(fake_spec(), 40, seed)) for seed in range(4)]
    phases = find_phases(episodes, latents.seen, phases=2, prototypes=10, clusters_per_phase=3)
    targets = Targets.of(phases, torch.from_numpy(np.concatenate(episodes)), latents.seen)
    torch.manual_seed(1)
    dynamics = LatentDynamics(latents.size, 8, 5, width=16, depth=1, dropout=0.0)
    torch.nn.init.normal_(dynamics.change.last[-1].weight, std=change)
    return GuidedPolicy(policy, dynamics.eval().requires_grad_(False), targets, guide, "guided")


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_those_entries_of_the_context_that_change_with_what_they_name(kind, monkeypatch, request):
    policy = make_policy(completed(KINDS[kind], request))
    if kind == "resnet":  # at 32 pixels its spatial softmax sees a single place and says the same of every picture
        for encoder in policy.model.diffusion.rgb_encoder:
            monkeypatch.setattr(encoder, "forward", lambda x: x.mean((1, 2, 3))[:, None].expand(-1, 8))
    obs = ReplayEnv(3).reset([1, 2, 3])
    memory = policy.remember(obs, None)
    context = lambda m: policy.family.features(policy.family.context(policy.model, policy.batch(m, np.arange(3))))  # noqa: E731
    before, found = context(memory), policy.family.blocks(policy.model)
    assert set(found) == {"state"} | ({f"image/{c}" for c in policy.inputs.cameras} if policy.inputs.cameras else {"environment_state"})
    for name, entries in found.items():
        if name == "state":
            changed = replace(memory, state=np.concatenate([memory.state[:, :-1], memory.state[:, -1:] + 0.5], 1))
        elif name == "environment_state":
            truth = memory.environment_state
            changed = replace(memory, environment_state=np.concatenate([truth[:, :-1], truth[:, -1:] + 0.5], 1))
        else:
            camera = name.removeprefix("image/")
            rows = memory.frames[camera].copy()
            rows[:, -1] = 255 - rows[:, -1]
            changed = replace(memory, frames={**memory.frames, camera: rows})
        differs = (context(changed) != before).any(0)
        assert differs[entries].any() and not differs[[i for i in range(before.shape[1]) if i not in entries]].any(), name


@pytest.mark.parametrize("kind", KINDS)
def test_latents_of_an_episode_are_those_met_while_acting(kind, request):
    policy = make_policy(completed(KINDS[kind], request))
    latents, env = Latents(policy), ReplayEnv(1)
    episode = fake_episode(fake_spec(), 60, 5)
    whole = latents.of_episode(episode)
    assert whole.shape == (61, latents.size)
    memory = policy.remember(env.reset([5]), None)
    with torch.no_grad():
        first = latents.of_context(policy.family.context(policy.model, policy.batch(memory, np.zeros(16, int))))[0]
        memory = policy.remember(env.step(np.zeros((1, 8, 5), np.float32), np.ones(1, bool)).obs, memory)
        later = latents.of_context(policy.family.context(policy.model, policy.batch(memory, np.zeros(16, int))))[0]
    np.testing.assert_allclose(whole[0], first, atol=1e-5)
    np.testing.assert_allclose(whole[8], later, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guide", [replace(ALWAYS, scale=0.0), Lpb(scale=0.0, noisiest=1.0, threshold=None), replace(ALWAYS, noisiest=0)])
def test_guiding_with_a_scale_of_zero_is_the_policy_bit_for_bit(kind, guide, request):
    guided = make_guided(completed(KINDS[kind], request), guide)
    obs = ReplayEnv(3).reset([1, 2, 3])
    own, _ = guided.policy.act(obs, None, generators([1, 2, 3]))
    actions, _ = guided.act(obs, guided.start(3), generators([1, 2, 3]))
    np.testing.assert_array_equal(actions, own)


@pytest.mark.parametrize("kind", ["state", "vla"])
@pytest.mark.parametrize("guide", [ALWAYS, Lpb(scale=0.5, noisiest=1.0, threshold=None)])
def test_guided_plans_lead_nearer_to_the_demonstrations(guide, kind, request):
    guided = make_guided(completed(KINDS[kind], request), guide)
    obs = ReplayEnv(16).reset(range(16))
    recent = guided.policy.remember(obs, None)
    policy, model = guided.policy, guided.policy.model
    with torch.no_grad():
        context = policy.family.context(model, policy.batch(recent, np.arange(16)))
        moment, noise = guided._moment(context, torch.zeros(16, dtype=torch.long)), policy.noise(generators(range(16)))
        plan = policy.family.sampled(model, context, noise, None)
        moved = policy.family.sampled(model, context, noise, None, lambda x, step, c: guide.adjust(moment, x, step, c)[:2])
        if isinstance(guide, Pcg):
            far = lambda z: guide.pull(z, moment).mean()  # noqa: E731
        else:

            def far(z):
                return torch.cdist(z[:, : guided.targets.seen], guided.targets.demonstrated[:, : guided.targets.seen]).min(1).values.mean()

        assert far(moment.predict(moved)) < far(moment.predict(plan))


def test_episodes_carry_the_controller_of_each_replan_and_what_was_told():
    guided = make_guided(guide=replace(ALWAYS, lower=40, upper=None), change=0.01)
    assert isinstance(guided, Policy) and isinstance(guided, Tells)
    rollouts = list(run_episodes(ReplayEnv(4), guided, range(4), max_steps=20, kind=guided.kind))
    for rollout in rollouts:
        episode, told = rollout.episode, rollout.told
        assert episode.source.kind == "guided" and set(told) == {"gate", "phase", "distance"}
        assert told["gate"].shape == (20, 8) and told["phase"].shape == told["distance"].shape == (20,)
        assert np.array_equal(episode.controller == Controller.GUIDED, told["gate"].any(1))
        assert set(np.diff(episode.segment)) <= {0, 1}
        assert np.array_equal(np.diff(episode.segment) == 1, np.diff(episode.controller) != 0)
        assert (np.diff(told["phase"]) >= 0).all()
    controllers = np.concatenate([rollout.episode.controller for rollout in rollouts])
    assert set(controllers) == {Controller.POLICY, Controller.GUIDED}


@pytest.mark.parametrize(("kind", "guide"), [("small", ALWAYS), ("vla", ALWAYS), ("vla", Lpb(scale=0.5, noisiest=1.0, threshold=None))])
def test_outcomes_do_not_depend_on_batches_and_lerobots_inference_mode_is_no_hindrance(kind, guide, request):
    guided = make_guided(completed(KINDS[kind], request), guide)
    rolls = [
        {r.episode.source.seed: r.episode.action for r in run_episodes(ReplayEnv(n), guided, range(9), max_steps=16, kind="guided")}
        for n in (2, 9)
    ]
    with torch.inference_mode():
        again = {r.episode.source.seed: r.episode.action for r in run_episodes(ReplayEnv(4), guided, range(9), max_steps=16, kind="guided")}
    for seed in range(9):
        np.testing.assert_array_equal(rolls[0][seed], rolls[1][seed])
        np.testing.assert_array_equal(rolls[0][seed], again[seed])


def test_numbers_far_outside_of_the_demonstrations_are_cut_off():
    policy = make_policy(STATE)
    latents = Latents(policy)
    context = torch.full((1, policy.model.config.n_obs_steps * latents.size), 40.0)
    context[:, ::2] = -40.0
    assert set(latents.of_context(context).unique().tolist()) == {-3.0, 3.0}
