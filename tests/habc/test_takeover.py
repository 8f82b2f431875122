"""A person takes over by a stated rule, says who acted when, and episodes do not depend on their neighbours."""

from dataclasses import replace

import numpy as np
import pytest

from robowm.errors import UserError
from robowm.habc.takeover import Rewind, Stuck, Watched
from robowm.rollout import run_episodes
from robowm.types import Controller, Obs, Steps

P, R, C = Controller.POLICY, Controller.HUMAN_RECOVERY, Controller.HUMAN_CORRECTION
STUCK = Stuck(patience=5, gain=0.004)


class Line:
    """A hand on a line from 0 that goes where it is told; the goal holds from x = 1 on. Odd seeds cannot get past .3 by the policy."""

    n, fps, task_name = 8, 10.0, "fake/line"

    def reset(self, seeds):
        self._x = np.zeros((len(seeds), 1, 3), np.float32)
        self._odd = np.array(seeds, np.float32)[:, None, None] % 2
        return self._obs(self._x)

    def goal_holds(self):
        return np.zeros(len(self._x), bool)

    def step(self, actions, active):
        self._x = np.where(active[:, None, None], actions[:, -1:], self._x)
        good = actions[:, :, 0] >= 1.0 - 1e-6
        valid = np.repeat(active[:, None], actions.shape[1], 1)
        return Steps(self._obs(actions), good.astype(np.float32), good, np.zeros_like(good), valid)

    def _obs(self, rows):
        truth = np.repeat(self._odd, rows.shape[1], 1)
        return Obs({}, rows.astype(np.float32), truth, ("go",) * len(rows))


class Walks:
    """Plans four steps of .02 (and a little noise sideways); on odd seeds it stops at .3."""

    name = "walker"

    def start(self, n):
        return None

    def act(self, obs, memory, rngs):
        x, odd = obs.state[:, -1:], obs.environment_state[:, -1, 0] > 0
        plan = np.repeat(x, 4, 1) + np.arange(1, 5)[None, :, None] * np.array([0.02, 0, 0])
        plan[odd, :, 0] = np.minimum(plan[odd, :, 0], 0.3)
        plan[:, :, 1] += np.stack([rng.standard_normal(4) for rng in rngs]) * 1e-3
        return plan.astype(np.float32), None


class Strides:
    """Goes .05 a step; its memory counts its steps."""

    name = "strides"

    def start(self, n):
        assert n == 1
        return 0

    def act(self, obs, memory, rngs):
        return (obs.state[:, -1:] + np.array([0.05, 0, 0])).astype(np.float32), memory + 1


class Helper:
    """Strides, knows how far it is, and goes back."""

    name, policy = "helper", Strides()

    def way(self, obs):
        return np.maximum(1 - obs.state[:, -1, 0].astype(float), 0)

    def hand(self, state):
        return state.astype(float)

    def back(self, obs, state):
        return obs.state[:, -1] + np.clip(state - obs.state[:, -1], -0.03, 0.03)


def run(seeds, *, max_steps=100, **style):
    watched = Watched(Walks(), Helper(), STUCK, **style)
    return list(run_episodes(Line(), watched, seeds, max_steps=max_steps, kind=watched.kind, stop_after_success=2))


def runs_of(episode):
    """Return [(controller, steps)] of the episode's segments, and check that segments are what they say."""
    found = []
    for segment in range(episode.segment.max() + 1):
        who = episode.controller[episode.segment == segment]
        assert len(set(who.tolist())) == 1
        found.append((Controller(int(who[0])), len(who)))
    return found


def test_a_policy_that_gets_on_is_left_alone():
    (rollout,) = run([2], hand_back=0.1)
    assert runs_of(rollout.episode) == [(P, len(rollout.episode))] and rollout.episode.success == 1
    assert rollout.episode.source.kind == "human" and rollout.episode.source.policy.startswith("walker-watched-")


def test_hg_dagger_takes_over_when_stuck_and_gives_back_where_the_policy_would_plan():
    (rollout,) = run([1], hand_back=0.1)
    runs, told = runs_of(rollout.episode), rollout.told
    assert [who for who, _ in runs[:3]] == [P, C, P]
    assert runs[0][1] == 15 + 5  # 15 steps to .3, and five that brought no progress
    taken = runs[0][1] + runs[1][1]
    assert taken % 4 == 0 and told["way"][taken] < 0.7 - 0.1 and told["way"][taken - 4] >= 0.7 - 0.1


def test_rac_brings_the_hand_back_then_carries_on_and_ends_the_episode():
    (rollout,) = run([1], rewind=Rewind(reach=0.1, near=0.01, most=12), hand_back=0.1, ends=True)
    runs, x = runs_of(rollout.episode), rollout.episode.state[:, 0]
    assert [who for who, _ in runs] == [P, R, C]
    turned = runs[0][1] + runs[1][1]
    assert x[turned] == pytest.approx(0.2, abs=0.011)  # .1 before where it got stuck
    assert x[-1] > 0.4 >= x[-2] - 1e-6 and rollout.episode.success == 0  # it ends as soon as that is .1 behind


def test_without_a_hand_back_the_person_finishes():
    (rollout,) = run([1])
    assert [who for who, _ in runs_of(rollout.episode)] == [P, C] and rollout.episode.success == 1


def test_a_rewind_that_does_not_arrive_is_given_up():
    (rollout,) = run([1], rewind=Rewind(reach=0.1, near=0.0, most=2))
    assert runs_of(rollout.episode)[1] == (R, 2)


@pytest.mark.parametrize("style", [{"hand_back": 0.1}, {"rewind": Rewind(reach=0.1), "hand_back": 0.1, "ends": True}])
def test_neighbours_do_not_matter(style):
    together = run([1, 2, 3, 5], **style)
    for alone, beside in zip([run([seed], **style)[0] for seed in (1, 2, 3, 5)], together, strict=True):
        assert np.array_equal(alone.episode.action, beside.episode.action)
        assert np.array_equal(alone.episode.controller, beside.episode.controller)


def test_the_rule_is_part_of_the_name():
    names = {Watched(Walks(), Helper(), replace(STUCK, patience=n), hand_back=h).name for n in (5, 6) for h in (None, 0.1)}
    assert len(names) == 4


def test_rules_that_make_no_sense_are_refused():
    with pytest.raises(UserError, match="patience=0"):
        Stuck(patience=0)
    with pytest.raises(UserError, match="near < reach"):
        Rewind(reach=0.01, near=0.02)
    with pytest.raises(UserError, match="hand_back=-1"):
        Watched(Walks(), Helper(), STUCK, hand_back=-1)
