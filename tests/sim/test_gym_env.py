from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import sim.tabletop.gym_env  # noqa: F401  registers the environments
from robowm.types import Obs
from sim.experts import ScriptedExpert


@pytest.mark.parametrize("name", ["Push", "PickPlace", "Insert"])
@pytest.mark.filterwarnings("error", "ignore:.*symmetric and normalized space.*")
def test_gymnasiums_own_checker_passes(gl, name):
    env = gymnasium.make(f"robowm/Tabletop{name}-v0", image_size=32)
    check_env(env.unwrapped)
    env.close()


def test_observations_are_named_as_lerobots_simulators_name_them(gl):
    env = gymnasium.make("robowm/TabletopPickPlace-v0", image_size=24)
    obs, info = env.reset(seed=4)
    assert set(obs) == {"pixels", "agent_pos", "environment_state"} and set(obs["pixels"]) == {"external", "wrist"}
    assert env.observation_space.contains(obs) and info["is_success"] is False
    assert np.array_equal(env.render(), obs["pixels"]["external"])
    env.close()


def test_the_expert_succeeds_and_ends_the_episode():
    env = gymnasium.make("robowm/TabletopPickPlace-v0", cameras=())
    obs, _ = env.reset(seed=1)
    expert = ScriptedExpert("pick_place")
    memory, done, rewards = expert.start(1), False, []
    while not done:
        seen = Obs({}, obs["agent_pos"][None, None], obs["environment_state"][None, None], ("",))
        actions, memory = expert.act(seen, memory, [np.random.default_rng(0)])
        obs, reward, terminated, truncated, info = env.step(actions[0, 0])
        rewards.append(reward)
        done = terminated or truncated
    assert terminated and info["is_success"] and rewards == [0.0] * (len(rewards) - 1) + [1.0]
