import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from robowm.artefacts import read_artefact
from robowm.errors import UserError
from robowm.evaluation import policies
from robowm.types import Steps
from tests.fakes import CounterEnv, NoisePolicy

FIRST = 100_000


class LuckyEnv(CounterEnv):
    """Succeeds where the sum of an episode's actions is positive, so that outcomes depend on each episode's own noise; step 6 undoes it."""

    undo = False

    def reset(self, seeds):
        self._sum = np.zeros(len(seeds))
        return super().reset(seeds)

    def goal_holds(self):
        return np.zeros(len(self._seeds), bool)

    def step(self, actions, active):
        steps = super().step(actions, active)
        sums = self._sum[:, None] + np.cumsum(np.where(active[:, None], actions[..., 0], 0), 1)
        self._sum = sums[:, -1]
        times = steps.obs.state[..., 0]
        success = (sums > 0) & (times >= 4) & ~((times >= 6) & self.undo)
        return Steps(steps.obs, success.astype(np.float32), success, steps.terminated, steps.valid)


def evaluate(folder, env=None, **options):
    options = {"episodes": 10, "max_steps": 12, "arm": "base", "first_seed": FIRST, "stop_after_success": 3, **options}
    return policies.run(env=env or LuckyEnv(4), policy=NoisePolicy(), output_dir=folder, **options)


def verdicts(folder):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in policies.read_episodes([folder])]


def test_every_start_runs_once_and_the_artefact_is_sealed(tmp_path):
    summary = evaluate(tmp_path)
    lines = verdicts(tmp_path)
    assert [line["seed"] for line in lines] == list(range(FIRST, FIRST + 10))
    assert set(lines[0]) == {"task", "arm", "train_seed", "seed", "success", "success_at_end", "success_at_reset", "steps"}
    record = read_artefact(tmp_path, "evaluation")
    assert record["inputs"] == {"policy": "fake.noise"} and record["rows"] == summary["rows"]
    row = summary["rows"][0]
    assert row["metric"] == "success" and row["n"] == 10 and row["value"] == np.mean([line["success"] for line in lines])
    assert 0 < row["value"] < 1 and row["low"] < row["value"] < row["high"]
    assert any("small sample, n = 10" in note for note in summary["notes"])


@pytest.mark.parametrize("n", [1, 3, 7])
def test_outcomes_do_not_depend_on_the_batch_size(tmp_path, n):
    evaluate(tmp_path / "a")
    evaluate(tmp_path / "b", LuckyEnv(n))
    assert verdicts(tmp_path / "a") == verdicts(tmp_path / "b")


def test_once_and_at_end_differ_when_the_goal_is_left_again(tmp_path):
    env = LuckyEnv(4)
    env.undo = True
    evaluate(tmp_path, env)
    lines = verdicts(tmp_path)
    assert sum(line["success"] for line in lines) > 0 and sum(line["success_at_end"] for line in lines) == 0


def test_a_goal_that_holds_at_reset_is_nobodys_success(tmp_path):
    env = CounterEnv(4, goal=lambda seed: 0 if seed == FIRST else 5)
    summary = evaluate(tmp_path, env, episodes=4)
    first, second = verdicts(tmp_path)[:2]
    assert (first["success"], first["success_at_end"], first["success_at_reset"], first["steps"]) == (0, 0, 1, 12)
    assert (second["success"], second["success_at_end"], second["success_at_reset"], second["steps"]) == (1, 1, 0, 5)
    assert [row["value"] for row in summary["rows"]] == [0.75, 0.75, 0.25]
    assert any("held at reset in 1 of 4" in note for note in summary["notes"])


def test_a_finished_evaluation_returns_at_once(tmp_path):
    first = evaluate(tmp_path)

    class Untouchable(LuckyEnv):
        def reset(self, seeds):
            raise AssertionError("evaluated again")

    assert evaluate(tmp_path, Untouchable(4)) == first


def test_an_interrupted_batch_is_repeated_and_nothing_else(tmp_path):
    evaluate(tmp_path / "whole")

    class Dies(LuckyEnv):
        batches = 0

        def reset(self, seeds):
            self.batches += 1
            if self.batches == 3:
                raise KeyboardInterrupt
            return super().reset(seeds)

    with pytest.raises(KeyboardInterrupt):
        evaluate(tmp_path / "cut", Dies(3))
    log = tmp_path / "cut" / policies.EPISODES
    assert len(log.read_text().splitlines()) == 6
    with log.open("a") as file:
        file.write('{"task": "fake/coun')  # what a kill in the middle of a write leaves
    evaluate(tmp_path / "cut", LuckyEnv(4))
    assert verdicts(tmp_path / "cut") == verdicts(tmp_path / "whole")
    names = [sorted(p.name for p in (tmp_path / run / "videos").iterdir()) for run in ("cut", "whole")]
    assert names[0] == names[1]


SLOW = """
import sys, time
from tests.evaluation.test_policies import LuckyEnv, evaluate
class Slow(LuckyEnv):
    def step(self, actions, active):
        time.sleep(0.02)
        return super().step(actions, active)
evaluate(sys.argv[1], Slow(2), episodes=30, failure_videos=0, success_videos=0)
"""


def test_kill_9_loses_at_most_a_batch(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path / "cut")])
    log = tmp_path / "cut" / policies.EPISODES
    until = time.monotonic() + 30
    while not (log.is_file() and len(log.read_text().splitlines()) >= 4) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert 4 <= len(log.read_text().splitlines()) < 30
    evaluate(tmp_path / "cut", episodes=30, failure_videos=0, success_videos=0)
    evaluate(tmp_path / "whole", episodes=30, failure_videos=0, success_videos=0)
    assert verdicts(tmp_path / "cut") == verdicts(tmp_path / "whole")


def test_videos_of_the_first_failures_and_successes(tmp_path):
    evaluate(tmp_path, failure_videos=1, success_videos=2)
    lines = verdicts(tmp_path)
    expected = [f"failure_{line['seed']}.mp4" for line in lines if not line["success"]][:1]
    expected += [f"success_{line['seed']}.mp4" for line in lines if line["success"]][:2]
    assert sorted(p.name for p in (tmp_path / "videos").iterdir()) == sorted(expected)


def test_seeds_outside_the_range_and_empty_evaluations_are_refused(tmp_path):
    with pytest.raises(UserError, match="evaluation seeds lie in"):
        evaluate(tmp_path, first_seed=50_000)
    evaluate(tmp_path / "tuning", first_seed=50_000, purpose="tuning", episodes=2)
    with pytest.raises(UserError, match="at least one episode"):
        evaluate(tmp_path, episodes=0)


def test_another_request_for_the_same_folder_is_refused(tmp_path):
    evaluate(tmp_path)
    with pytest.raises(UserError, match=r"config\.episodes = 10, now asked with 11"):
        evaluate(tmp_path, episodes=11)


def test_several_training_seeds_are_summarised_together(tmp_path):
    for train_seed in range(2):
        evaluate(tmp_path / str(train_seed), train_seed=train_seed, noise_salt=train_seed)
    summary = policies.summarise([tmp_path / "0", tmp_path / "1"])
    assert summary["rows"][0]["n"] == 20
    with pytest.raises(UserError, match="evaluated twice"):
        policies.summarise([tmp_path / "0", tmp_path / "0"])
    with pytest.raises(UserError, match="does not exist"):
        policies.summarise([tmp_path / "2"])
    assert json.loads((tmp_path / "0" / policies.SUMMARY).read_text())["starts_per_second"] > 0
