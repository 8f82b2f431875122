"""The rivals that have critics of their own, and cloning of what people showed."""

import numpy as np
import pytest
import torch

from robowm.errors import UserError
from robowm.habc.credit import NEVER, Role
from robowm.habc.rivals import iql, recap, shown
from robowm.habc.value_critics import BINS, Iql, Recap, joined, moves_of
from robowm.habc.weights import Steps

CHUNK = 4


def steps(roles, advantage=None, valid=None):
    n = len(roles)
    role = torch.tensor([int(r) for r in roles])
    valid = torch.ones(n, dtype=torch.bool) if valid is None else valid
    return Steps(role, torch.full((n,), NEVER), valid, advantage=advantage)


def walk(length, success, wrong=0.0):
    """An episode towards 0 on a line, latents (place, 1); actions say how far each step goes; ``wrong`` of the way is lost at the end."""
    place = 1 - np.arange(length + 1) / length
    place[-3:] += wrong
    latent = np.stack([place, np.ones(length + 1)], 1).astype(np.float32)
    action = -np.diff(place)[:, None].astype(np.float32)
    togo = np.arange(length, 0, -1) if success else np.full(length, NEVER)
    return moves_of(latent, action, togo, CHUNK)


def test_moves_end_at_the_goal_or_with_the_episode():
    won, lost = walk(6, True), walk(6, False)
    assert won.span.tolist() == lost.span.tolist() == [4, 4, 4, 3, 2, 1]
    assert won.arrives.tolist() == [False, False, True, True, True, True] and not won.over.any()
    assert lost.over.tolist() == won.arrives.tolist() and not lost.arrives.any() and torch.isinf(lost.togo).all()
    assert torch.equal(won.after[0], won.now[4]) and won.action.shape == (6, CHUNK)
    assert won.action[5].unique().numel() == 1  # the last action stands for those that were never given


def train(method, batch, updates=400):
    torch.manual_seed(0)
    net = method.build(2, CHUNK, CHUNK, 32, 1, 0.0)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(updates):
        loss = sum(method.loss(net, batch).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


def test_iql_learns_how_soon_the_reward_comes_and_prefers_the_action_that_brings_it():
    good, method = walk(12, True), Iql(discount=0.9, expectile=0.7)
    still = np.ones((13, 2), np.float32)
    bad = moves_of(still, np.zeros((12, 1), np.float32), np.full(12, NEVER), CHUNK)  # stands where the other began
    net = train(method, joined([good, bad]))
    v = net.of_states(good.now)
    assert v[-1] > 0.8 and v[-1] > v[4] > 0.2  # .9 to the power of the steps to go
    assert method.advantage(net, good)[0] > method.advantage(net, bad)[0] + 0.05


def test_iql_terms_are_the_papers():
    batch = walk(6, True)
    method = Iql(discount=0.9, expectile=0.8)
    net = method.build(2, CHUNK, CHUNK, 16, 1, 0.0)  # fresh: Q and V say 0
    terms = {name: term.detach() for name, term in method.loss(net, batch).items()}
    target = torch.where(batch.arrives, 0.9**batch.span, 0.0)
    assert float(terms["v"]) == 0 and float(terms["q"]) == pytest.approx(2 * float((target**2).mean()), rel=1e-5)
    torch.nn.init.constant_(net.v.last[-1].bias, 0.5)  # V = .5 > Q = 0: weighs 1 - tau
    assert float(method.loss(net, batch)["v"].detach()) == pytest.approx(0.2 * 0.25, rel=1e-5)
    torch.testing.assert_close(method.advantage(net, batch), torch.full((6,), -0.5))


def test_recap_learns_returns_as_they_came_out():
    won, lost = walk(12, True), walk(12, False)
    method = Recap(longest=24)
    net = train(method, joined([won, walk(12, True)]))
    torch.testing.assert_close(net.mean(won.now), -won.togo / 24, atol=0.05, rtol=0)
    fresh = method.build(2, CHUNK, CHUNK, 16, 1, 0.0)
    assert float(method.loss(fresh, lost)["returns"].detach()) == pytest.approx(np.log(BINS), rel=1e-5)
    advantage = method.advantage(net, won)
    assert advantage.abs().max() < 0.08  # as fast as ever: neither better nor worse
    assert float(method.advantage(fresh, lost)[-1].detach()) == pytest.approx(-1 / 24 - 1 + 0.5, abs=1e-5)  # a failure's end is worth -1


def test_iql_weights_are_exponential_and_capped():
    roles = [Role.SUCCESS, Role.FAILURE, Role.HUMAN, Role.DEMO]
    found = iql(steps(roles, torch.tensor([0.1, 0.0, 1.0, 0.2])), beta=10.0, cap=100.0)
    ratio = found.weight / found.weight[1]
    np.testing.assert_allclose(ratio[:3], [np.exp(1), 1, 100], rtol=1e-5)
    assert found.weight[3] == 1 and found.numbers["clipped"] == 0.25


def test_recap_marks_the_upper_share_of_the_policys_steps_and_all_of_peoples():
    roles = [Role.SUCCESS] * 5 + [Role.FAILURE] * 5 + [Role.HUMAN, Role.DEMO]
    found = recap(steps(roles, torch.tensor([*np.arange(10.0), -9.0, -9.0])), positive=0.4)
    assert found.improved.tolist() == [0] * 6 + [1] * 4 + [1, 1] and (found.weight == 1).all()


def test_shown_is_demonstrations_and_people_alone_and_alike():
    roles = [Role.DEMO, Role.SUCCESS, Role.FAILURE, Role.HUMAN, Role.ASSISTED]
    assert shown(steps(roles)).weight.tolist() == [1, 0, 0, 1, 0]
    with pytest.raises(UserError, match="neither demonstrations nor"):
        shown(steps([Role.SUCCESS]))
    assert shown(steps(roles), keeps_total=True).weight.tolist() == [1, 0, 0, 4, 0], "a store of four steps keeps its total"


def test_a_rival_without_its_critic_names_the_verb():
    for weighting in (iql, recap):
        with pytest.raises(UserError, match=f"critic={weighting.__name__}"):
            weighting(steps([Role.SUCCESS]))
