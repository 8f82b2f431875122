import numpy as np
import pytest

from robowm.apps.cli import main
from robowm.errors import UserError
from robowm.protocols import Env, Policy, Rewindable
from robowm.rollout import run_episodes
from sim.discs import Chase, DiscsEnv, Wander
from sim.discs.env import AGENT, PUCK, advance


def episodes(actor, seeds=range(10_000, 10_064), n=64):
    return [rollout.episode for rollout in run_episodes(DiscsEnv(n), actor, seeds, max_steps=66, kind="rollout")]


def test_satisfies_the_protocols():
    assert isinstance(DiscsEnv(), Env) and isinstance(DiscsEnv(), Rewindable)
    assert isinstance(Chase(), Policy) and isinstance(Wander(), Policy)


def test_an_episode_depends_on_its_seed_alone():
    together, alone = episodes(Chase()), episodes(Chase(), [10_007], n=3)
    for name in ("state", "environment_state", "action"):
        assert np.array_equal(getattr(together[7], name), getattr(alone[0], name))
    assert np.array_equal(together[7].frames["top"], alone[0].frames["top"])


def test_chasing_reaches_the_goal_and_wandering_does_less_often():
    chased, wandered = (np.mean([e.success for e in episodes(actor)]) for actor in (Chase(), Wander()))
    assert chased >= 0.95 and wandered < 0.7
    env = DiscsEnv(64)
    env.reset(range(64))
    assert not env.goal_holds().any()


def test_friction_is_invisible_and_decides_where_the_puck_comes_to_rest():
    slick, rough = np.array([0.3, 0.5, 0.5, 0.5, 1.0, 0.0, 0.3]), np.array([0.3, 0.5, 0.5, 0.5, 1.0, 0.0, 4.0])
    env = DiscsEnv(2)
    first = env.set_state(np.stack([slick, rough]))
    assert np.array_equal(first.frames["top"][0], first.frames["top"][1]) and np.array_equal(first.state[0], first.state[1])
    later = env.step(np.zeros((2, 8, 2)), np.ones(2, bool)).obs
    assert (later.frames["top"][0, -1] != later.frames["top"][1, -1]).any()
    assert later.environment_state[0, 2, 2] > later.environment_state[1, 2, 2] + 0.05


def test_nothing_leaves_the_table_and_discs_do_not_overlap():
    truth = np.stack([e.environment_state for e in episodes(Chase(noise=1.0))])
    assert (truth[..., :2] >= AGENT - 1e-6).all() and (truth[..., :2] <= 1 - AGENT + 1e-6).all()
    assert (truth[..., 2:4] >= PUCK - 1e-6).all() and (truth[..., 2:4] <= 1 - PUCK + 1e-6).all()
    overlap = AGENT + PUCK - np.linalg.norm(truth[..., :2] - truth[..., 2:4], axis=-1)
    free = ((truth[..., 2:4] > PUCK + 0.02) & (truth[..., 2:4] < 1 - PUCK - 0.02)).all(-1)
    assert overlap[free].max() < 0.02 < overlap.max(), "only a puck pinched at a wall is overrun"


def test_a_push_passes_momentum_on():
    state = np.array([[0.3, 0.5, 0.53, 0.5, 0.0, 0.0, 0.3]])
    for _ in range(3):
        state = advance(state, np.array([[1.0, 0.0]]))
    assert state[0, 4] > 1.0 and abs(state[0, 5]) < 1e-9 and state[0, 2] > 0.6


def test_states_can_be_restored():
    env = DiscsEnv(4)
    env.reset(range(4))
    actions = np.random.default_rng(0).normal(size=(4, 10, 2))
    saved = env.get_state()
    one = env.step(actions, np.ones(4, bool)).obs
    env.set_state(saved)
    two = env.step(actions, np.ones(4, bool)).obs
    assert np.array_equal(one.environment_state, two.environment_state) and np.array_equal(one.frames["top"], two.frames["top"])


def test_bad_actions_are_named():
    env = DiscsEnv(2)
    env.reset([0, 1])
    with pytest.raises(UserError, match=r"expected \[2, H >= 1, 2\]"):
        env.step(np.zeros((2, 1, 3)), np.ones(2, bool))
    with pytest.raises(UserError, match="NaN or infinity for episode 1"):
        env.step(np.array([[[0.0, 0.0]], [[np.nan, 0.0]]]), np.ones(2, bool))


def test_the_tabletop_expert_is_refused_by_name(tmp_path, capfd):
    assert main(["collect", "env=discs", "size=debug", "until_successes=1", f"output_dir={tmp_path / 'a'}"]) == 2
    assert "no scripted expert for task 'discs'" in capfd.readouterr().err
    words = ["env=discs", "actor=discs_chase", "size=debug", "until_successes=2", f"output_dir={tmp_path / 'b'}"]
    assert main(["collect", *words]) == 0
