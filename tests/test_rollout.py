import numpy as np
import pytest

from robowm.rollout import Replay, run_episodes
from robowm.types import Obs, Steps
from tests.fakes import CounterEnv, NoisePolicy


def roll(n, seeds, **options):
    return list(run_episodes(CounterEnv(n), NoisePolicy(), seeds, max_steps=10, kind="rollout", **options))


def test_frames_and_actions_pair_up():
    for rollout in roll(3, range(7)):
        episode = rollout.episode
        assert len(episode) == 10 and len(episode.state) == 11
        np.testing.assert_array_equal(episode.state[:, 0], np.arange(11))
        np.testing.assert_array_equal(episode.frames["external"][:, 0, 0, 0], np.arange(11))
        np.testing.assert_array_equal(rollout.success_steps, np.arange(11) >= 5 + episode.source.seed % 3)


@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_outcome_does_not_depend_on_the_batch(n):
    seeds = [3, 9, 4, 0, 7]
    assert [r.episode.source.seed for r in roll(n, seeds)] == seeds
    for one, other in zip(roll(3, seeds), roll(n, seeds), strict=True):
        np.testing.assert_array_equal(one.episode.action, other.episode.action)


def test_stops_a_fixed_time_after_the_first_success():
    assert [len(r.episode) for r in roll(3, range(6), stop_after_success=1)] == [6, 7, 8, 6, 7, 8]
    assert all(r.episode.success == 1.0 and r.episode.judged_by == "simulator" for r in roll(3, range(6)))


def test_success_at_reset_is_seen():
    env = CounterEnv(2, goal=lambda seed: 0)
    rollout = next(run_episodes(env, NoisePolicy(), [1], max_steps=4, kind="rollout"))
    assert rollout.success_steps.all()


def test_recorded_actions_are_played_again_and_then_held():
    actions = [np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(10, 20, dtype=np.float32).reshape(5, 2)]
    for chunk in (1, 2, 7):
        one, other = run_episodes(CounterEnv(2), Replay(actions, chunk), [0, 1], max_steps=5, kind="rollout")
        np.testing.assert_array_equal(one.episode.action, [*actions[0], actions[0][-1], actions[0][-1]])
        np.testing.assert_array_equal(other.episode.action, actions[1])


def test_frames_that_were_not_all_drawn_are_left_out():
    class Thrifty(CounterEnv):
        def step(self, actions, active):
            steps = super().step(actions, active)
            few = {camera: frames[:, -2:] for camera, frames in steps.obs.frames.items()}
            obs = Obs(few, steps.obs.state, None, steps.obs.task)
            return Steps(obs, steps.reward, steps.success, steps.terminated, steps.valid)

    episode = next(run_episodes(Thrifty(), NoisePolicy(), [0], max_steps=8, kind="rollout")).episode
    assert episode.frames == {} and len(episode.state) == 9
