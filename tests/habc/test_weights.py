"""What pins HABC's weights, the last of it through the very loss that trains policies."""

import numpy as np
import pytest
import torch

from robowm.data.fake import fake_episode, fake_spec
from robowm.data.sampler import ClipSampler
from robowm.data.sidecar import write_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.habc.credit import NEVER, Role
from robowm.habc.rivals import awr, filtered, iwr, sirius
from robowm.habc.weights import Steps, Values, advantages, clip_logit, gate, gate_argument, habc, summary
from robowm.policy.train import cloning_loss
from tests.policy.helpers import STATE, make_policy

ROLES = torch.tensor([Role.DEMO] * 20 + [Role.SUCCESS] * 30 + [Role.FAILURE] * 25 + [Role.HUMAN] * 15 + [Role.ASSISTED] * 10)


def make_values(n, *, p=None, a_v=None, a_e=None, successes=100):
    generator = torch.Generator().manual_seed(0)
    draw = lambda given: torch.randn(n, generator=generator) if given is None else torch.full((n,), float(given))  # noqa: E731
    return Values(torch.sigmoid(draw(None)) if p is None else draw(p), draw(a_v), draw(a_e), 0.0, successes)


def make_steps(roles=ROLES, *, valid=None, until=None, **values):
    n = len(roles)
    until = torch.full((n,), NEVER) if until is None else until
    return Steps(roles.long(), until, torch.ones(n, dtype=torch.bool) if valid is None else valid, make_values(n, **values))


def test_the_gate_of_no_advantage_is_one_and_it_stays_between_nought_and_two():
    assert gate(gate_argument(make_values(5, a_v=0, a_e=0), 0.25)).tolist() == [1.0] * 5
    values = gate(gate_argument(make_values(1000), 1.0))
    assert 0 < values.min() < 0.5 and 1.5 < values.max() < 2


def test_the_gate_rises_with_viability_where_success_is_unlikely_and_with_efficiency_where_it_is_likely():
    line = torch.linspace(-2, 2, 9)
    for p, along, across in ((0.0, "a_v", "a_e"), (1.0, "a_e", "a_v")):
        fields = {along: line, across: torch.randn(9, generator=torch.Generator().manual_seed(1))}
        argument = gate_argument(Values(torch.full((9,), p), **fields, clipped=0.0, successes=1), 1.0)
        assert (gate(argument).diff() > 0).all() and torch.equal(argument, line)


def test_no_gradient_passes_the_gate():
    a_v = torch.ones(3, requires_grad=True)
    argument = gate_argument(Values(torch.zeros(3), a_v, torch.zeros(3), 0.0, 1), 1.0)
    assert not argument.requires_grad and not gate(a_v).requires_grad
    (gate(a_v) * torch.ones(3, requires_grad=True)).sum().backward()
    assert a_v.grad is None


def test_a_lower_temperature_sharpens_the_gate_and_either_half_can_be_left_out():
    values = make_values(50)
    torch.testing.assert_close(gate_argument(values, 0.25), 4 * gate_argument(values, 1.0))
    halves = gate_argument(values, 1.0, efficiency=0.0) + gate_argument(values, 1.0, viability=0.0)
    torch.testing.assert_close(halves, gate_argument(values, 1.0))


def test_advantages_reach_over_the_window_in_units_of_the_chunk():
    logit, value = torch.tensor([0.0, 1, 3, 2, 5]), torch.tensor([-3.0, -2, -1.5, -1, 7])
    span, arrives = torch.tensor([2, 2, 1, 1]), torch.tensor([False, False, False, False])
    a_v, a_e = advantages(logit, value, span, arrives, 2)
    assert a_v.tolist() == [3, 1, -1, 3] and a_e.tolist() == [0.5, 0.0, 0.0, 7.5]


def test_where_a_window_arrives_viability_gains_nothing_and_no_time_is_left():
    logit, value = torch.tensor([0.0, 1, 3, 4]), torch.tensor([-1.5, -1, 0.3, 0.2])
    span, arrives = torch.tensor([2, 1, 0]), torch.tensor([True, True, True])
    a_v, a_e = advantages(logit, value, span, arrives, 2)
    assert a_v.tolist() == [0, 0, 0] and a_e.tolist() == [0.5, 0.5, 0.0]


def test_logits_are_cut_off_at_five():
    clipped, share = clip_logit(torch.tensor([-9.0, 5, 0, 6]))
    assert clipped.tolist() == [-5, 5, 0, 5] and share == 0.5


@pytest.mark.parametrize("weighting", [habc, filtered, awr])
def test_weights_have_mean_one_over_valid_online_steps_and_demonstrations_stay_at_one(weighting):
    valid = torch.arange(100) % 7 != 0
    steps = make_steps(valid=valid)
    weight = weighting(steps).weight
    assert weight[steps.online].mean() == pytest.approx(1.0, abs=1e-6)
    assert (weight[valid & (ROLES == Role.DEMO)] == 1).all() and (weight[~valid] == 0).all() and (weight >= 0).all()


def test_failures_weigh_nothing_and_people_as_much_as_a_gate_of_one():
    found = habc(make_steps(a_v=0, a_e=0))
    assert (found.weight[ROLES == Role.FAILURE] == 0).all()
    others = found.weight[(ROLES != Role.FAILURE) & (ROLES != Role.DEMO)]
    assert others.unique().tolist() == pytest.approx([80 / 55])
    gated = habc(make_steps()).weight
    assert len(gated[ROLES == Role.SUCCESS].unique()) > 1 and len(gated[ROLES == Role.HUMAN].unique()) == 1


def test_the_gate_may_weigh_everything():
    steps = make_steps()
    weight = habc(steps, gated=["success", "human", "assisted", "demo"]).weight
    for role in (Role.DEMO, Role.SUCCESS, Role.HUMAN, Role.ASSISTED):
        assert len(weight[role == ROLES].unique()) > 1
    assert weight[ROLES == Role.DEMO].mean() == pytest.approx(1.0, abs=1e-6) and (weight[ROLES == Role.FAILURE] == 0).all()


def test_efficiency_waits_for_enough_successes():
    few, many = (habc(make_steps(a_v=0, successes=n), min_successes=10) for n in (9, 10))
    assert len(few.weight[ROLES == Role.SUCCESS].unique()) == 1 < len(many.weight[ROLES == Role.SUCCESS].unique())
    assert (few.numbers["efficiency_counts"], many.numbers["efficiency_counts"]) == (0.0, 1.0)


def test_saturated_gates_and_the_effective_sample_size_are_counted():
    steps = make_steps(p=0.0, a_v=1.0)
    assert habc(steps, temperature=0.25).numbers["saturated"] == 1.0 and habc(steps, temperature=1.0).numbers["saturated"] == 0.0
    found = summary(steps, filtered(make_steps(ROLES[ROLES != Role.DEMO])).weight.new_tensor([0.0] * 50 + [2.0] * 50))
    assert found["effective_share"] == pytest.approx(0.5) and found["effective_steps"] == pytest.approx(50) and found["largest"] == 2.0


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(UserError, match="did you mean 'human'"):
        habc(make_steps(), gated=["humans"])
    with pytest.raises(UserError, match="temperature"):
        habc(make_steps(), temperature=0)
    with pytest.raises(UserError, match="give critics="):
        habc(Steps(ROLES.long(), torch.full((100,), NEVER), torch.ones(100, dtype=torch.bool)))


# ---------------------------------------------------------------------- through the loss that trains policies


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two successes and two failures of a policy."""
    made = EpisodeStore.create(tmp_path_factory.mktemp("habc") / "store", fake_spec())
    for seed in range(4):
        made.append(fake_episode(fake_spec(), 20 + seed, seed, success=float(seed % 2 == 0), kind="rollout"))
    return made


def roles_of(store):
    return torch.tensor([Role.SUCCESS if meta.success == 1 else Role.FAILURE for meta in store.metas]).repeat_interleave(
        torch.from_numpy(store.lengths)
    )


def batch_of(store, weight=None, *, only_success=False):
    if weight is not None:
        write_sidecar(store, "tried", {"weight": weight.numpy()})
    offsets = {"obs_offsets": [-1, 0], "action_offsets": list(range(-1, 15))}
    shares = [{"path": store.path, "weights": None if weight is None else "tried", "only_success": only_success}]
    return ClipSampler(shares, cameras=[], batch_size=32, seed=0, **offsets).batch(0)


def trained_loss(clips):
    """Return loss and gradients of the policy on ``clips``."""
    policy = make_policy(STATE)
    policy.model.train()
    torch.manual_seed(0)
    loss, _ = cloning_loss(policy.normalizers, policy.inputs)(policy.model, clips, torch.Generator().manual_seed(0))
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])


def test_weights_of_one_give_exactly_plain_cloning(store):
    steps = make_steps(torch.full((int(store.lengths.sum()),), Role.SUCCESS), a_v=0, a_e=0)
    weight = habc(steps).weight
    assert (weight == 1).all()
    for weighed, plain in zip(trained_loss(batch_of(store, weight)), trained_loss(batch_of(store)), strict=True):
        assert torch.equal(weighed, plain)


def test_advantages_of_zero_give_exactly_filtered_cloning(store):
    roles = roles_of(store)
    zero, random = (habc(make_steps(roles, **values)).weight for values in ({"a_v": 0, "a_e": 0}, {}))
    weighed, rival = batch_of(store, zero), batch_of(store, filtered(make_steps(roles)).weight)
    for ours, theirs in zip(trained_loss(weighed), trained_loss(rival), strict=True):
        assert torch.equal(ours, theirs)
    alone = batch_of(store, only_success=True)  # the same clips, of episodes that succeeded
    assert alone.refs == weighed.refs and (alone.weight == 1).all()
    for ours, theirs in zip(trained_loss(weighed), trained_loss(alone), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    assert not torch.equal(trained_loss(batch_of(store, random))[0], trained_loss(weighed)[0])


def test_iwr_gives_half_of_the_total_to_corrections():
    weight = iwr(make_steps()).weight
    assert weight[ROLES == Role.HUMAN].sum() == pytest.approx(float(weight[ROLES != Role.HUMAN].sum()))
    assert (iwr(make_steps(ROLES[ROLES != Role.HUMAN])).weight == 1).all()


def test_sirius_gives_each_class_its_share():
    until = torch.full((100,), NEVER)
    until[50:60] = torch.arange(20, 10, -1)  # five of these lie at most 15 steps before a take-over
    weight = sirius(make_steps(until=until)).weight
    share = lambda chosen: float(weight[chosen].sum() / weight.sum())  # noqa: E731
    leading = until <= 15
    assert int(leading.sum()) == 5 and share(leading) == pytest.approx(0.002)
    assert share(ROLES == Role.HUMAN) == pytest.approx(0.5) and share(ROLES == Role.DEMO) == pytest.approx(0.2)
    assert (weight[ROLES == Role.DEMO] == 1).all()
    assert (sirius(make_steps(ROLES[ROLES != Role.HUMAN])).weight == 1).all()


def test_awr_is_an_exponential_with_a_cap():
    roles = torch.full((4,), Role.SUCCESS)
    values = Values(torch.zeros(4), torch.tensor([0.0, 1, -1, 50]), torch.zeros(4), 0.0, 1)
    found = awr(Steps(roles, torch.full((4,), NEVER), torch.ones(4, dtype=torch.bool), values), beta=2.0, cap=20)
    assert found.numbers["clipped"] == 0.25
    np.testing.assert_allclose(found.weight / found.weight[0], [1, np.exp(0.5), np.exp(-0.5), 20], rtol=1e-5)
