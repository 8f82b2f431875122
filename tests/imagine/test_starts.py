import numpy as np
import pytest

from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.imagine.starts import EnvStarts, StoreStarts
from tests.fakes import COUNTER_SIZE, CounterEnv, masked_store
from tests.reward.stores import SPEC, episode


class SeedEnv(CounterEnv):
    """The start picture tells the seed."""

    def spec(self):
        cameras = {"external": (COUNTER_SIZE, COUNTER_SIZE)}
        return {
            "cameras": cameras,
            "state_names": ["count"],
            "action_names": ["a"],
            "environment_state_names": ["e"],
            "fps": 10.0,
            "action_kind": "absolute",
        }

    def reset(self, seeds):
        super().reset(seeds)
        return self._observe(np.array(seeds)[:, None] % 251)


def test_starts_of_a_simulator_come_by_seed_in_any_number():
    starts = EnvStarts(SeedEnv(n=2), first_seed=20_000, count=5)
    obs = starts([20_003, 20_001, 20_001])
    np.testing.assert_array_equal(obs.state[:, 0, 0], np.array([20_003, 20_001, 20_001]) % 251)
    assert obs.frames["external"].shape == (3, 1, COUNTER_SIZE, COUNTER_SIZE, 3) and obs.environment_state is None
    assert starts.spec.environment_state_names is None and list(starts.seeds) == list(range(20_000, 20_005))


def test_evaluation_starts_are_never_imagined():
    with pytest.raises(UserError, match="rollouts seeds lie in"):
        EnvStarts(SeedEnv(), first_seed=100_000, count=5)
    with pytest.raises(UserError, match="rollouts seeds lie in"):
        EnvStarts(SeedEnv(), first_seed=20_000, count=5)([100_000])


def store(path, seeds):
    made = EpisodeStore.create(path, SPEC)
    for seed in seeds:
        made.append(episode(seed))
    return made


def test_starts_of_a_store_are_its_first_rows(tmp_path):
    made = store(tmp_path / "s", [12, 10, 14])
    starts = StoreStarts(tmp_path / "s", task_name="fake/right")
    assert starts.seeds == [10, 12, 14]
    obs = starts([14, 12])
    np.testing.assert_array_equal(obs.frames["wrist"][1, 0], made.episode(0).frames["wrist"][0])
    np.testing.assert_array_equal(obs.state[:, 0], np.stack([made.episode(i).state[0] for i in (2, 0)]))
    assert obs.task == ("move right", "move right")
    with pytest.raises(UserError, match="no episode from start 11"):
        starts([11])


def test_a_store_of_validation_or_evaluation_episodes_is_refused(tmp_path):
    store(tmp_path / "s", [10, 60_000])
    with pytest.raises(UserError, match=r"1 starts that may not be trained on, first 60000 \(validation"):
        StoreStarts(tmp_path / "s", task_name="fake/right")


def test_masks_are_not_imagined(tmp_path):
    starts = StoreStarts(masked_store(tmp_path / "store", [4, 4], first_seed=10_000).path, task_name="fake/move")
    assert list(starts.spec.cameras) == list(starts([10_001]).frames) == ["external", "wrist"]
