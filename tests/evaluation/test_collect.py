import numpy as np
import pytest

from robowm.artefacts import read_artefact
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.evaluation import collect
from robowm.types import Controller
from tests.fakes import COUNTER_SIZE, CounterEnv, NoisePolicy


class RecordedEnv(CounterEnv):
    """Every third start cannot succeed."""

    def __init__(self, n=4, goal=lambda seed: 5 if seed % 3 else 99):
        super().__init__(n, goal)

    def spec(self):
        return {
            "cameras": {"external": (COUNTER_SIZE, COUNTER_SIZE)},
            "state_names": ["count"],
            "action_names": ["a", "b"],
            "environment_state_names": None,
            "fps": self.fps,
            "action_kind": "absolute",
        }


def gather(folder, env=None, **options):
    options = {"purpose": "demonstrations", "max_steps": 12, "stop_after_success": 2, **options}
    return collect.run(env=env or RecordedEnv(), policy=NoisePolicy(), output_dir=folder, **options)


def seeds(folder):
    return [meta.source.seed for meta in EpisodeStore.open(folder).metas]


def test_demonstrations_keep_successes_and_count_what_was_dropped(tmp_path):
    counts = gather(tmp_path, until_successes=5, keep_failures=False)
    assert counts == {"tried": 8, "stored": 5, "successes": 5, "dropped": 3}
    assert seeds(tmp_path) == [1, 2, 4, 5, 7]
    store = EpisodeStore.open(tmp_path)
    episode = store.episode(0)
    assert episode.source.kind == "demo" and set(episode.controller) == {Controller.DEMO} and len(episode) == 7
    np.testing.assert_array_equal(episode.reward, [0, 0, 0, 0, 1, 1, 1])
    record = read_artefact(tmp_path, "store")
    assert record["counts"] == counts and record["seeds"] == [0, 7] and record["inputs"] == {"policy": "fake.noise"}


def test_rollouts_keep_failures(tmp_path):
    counts = gather(tmp_path, purpose="rollouts", episodes=6)
    assert counts == {"tried": 6, "stored": 6, "successes": 4, "dropped": 0}
    assert seeds(tmp_path) == list(range(10_000, 10_006))
    episode = EpisodeStore.open(tmp_path).episode(2)
    assert episode.source.kind == "rollout" and episode.success == 0 and set(episode.controller) == {Controller.POLICY}


def test_demonstrations_until_enough_steps_of_people(tmp_path):
    counts = gather(tmp_path / "a", until_human_steps=15, keep_failures=False)
    assert counts == {"tried": 5, "stored": 3, "successes": 3, "dropped": 2, "human_steps": 21}  # seven steps each, the last one whole
    assert "human_steps" not in gather(tmp_path / "b", until_successes=3, keep_failures=False)
    with pytest.raises(UserError, match="exactly one of episodes, until_successes, until_human_steps"):
        gather(tmp_path / "c", until_human_steps=15, until_successes=3)


def test_rollouts_until_enough_successes_end_with_the_last_of_them(tmp_path):
    counts = gather(tmp_path, purpose="rollouts", until_successes=3)
    assert counts == {"tried": 4, "stored": 4, "successes": 3, "dropped": 0}
    assert EpisodeStore.open(tmp_path).meta(-1).success == 1


@pytest.mark.parametrize("options", [{"until_successes": 7, "keep_failures": False}, {"episodes": 9, "purpose": "rollouts"}])
def test_an_interrupted_collection_ends_in_the_same_store(tmp_path, options):
    gather(tmp_path / "whole", **options)

    class Dies(RecordedEnv):
        batches = 0

        def reset(self, seeds):
            self.batches += 1
            if self.batches == 3:
                raise KeyboardInterrupt
            return super().reset(seeds)

    with pytest.raises(KeyboardInterrupt):
        gather(tmp_path / "cut", Dies(3), **options)
    assert 0 < len(EpisodeStore.open(tmp_path / "cut")) < 7
    gather(tmp_path / "cut", **options)
    assert EpisodeStore.open(tmp_path / "cut").fingerprint() == EpisodeStore.open(tmp_path / "whole").fingerprint()
    records = [read_artefact(tmp_path / run) for run in ("cut", "whole")]
    assert records[0]["counts"] == records[1]["counts"]


def test_a_finished_collection_returns_at_once(tmp_path):
    counts = gather(tmp_path, purpose="rollouts", episodes=3)
    assert gather(tmp_path, Forbidden(), purpose="rollouts", episodes=3) == counts


class Forbidden(RecordedEnv):
    def reset(self, seeds):
        raise AssertionError("collected again")


def test_too_few_successes_say_how_many_there_were(tmp_path):
    with pytest.raises(UserError, match="reached 2 of 3 successes in 4 tries"):
        gather(tmp_path, until_successes=3, keep_failures=False, max_tries=4)
    assert len(EpisodeStore.open(tmp_path)) == 2


def test_a_goal_that_holds_at_reset_is_no_demonstration(tmp_path):
    gather(tmp_path, RecordedEnv(goal=lambda seed: 0 if seed == 1 else 5), until_successes=3, keep_failures=False)
    assert seeds(tmp_path) == [0, 2, 3]


def test_stages_stay_inside_their_seed_range(tmp_path):
    with pytest.raises(UserError, match="rollouts seeds lie in 10000"):
        gather(tmp_path, purpose="rollouts", episodes=5, first_seed=49_997)
    with pytest.raises(UserError, match="did you mean"):
        gather(tmp_path, purpose="demonstration", episodes=5)
    with pytest.raises(UserError, match="exactly one"):
        gather(tmp_path, episodes=5, until_successes=5)
    with pytest.raises(UserError, match="exactly one"):
        gather(tmp_path, episodes=0)
