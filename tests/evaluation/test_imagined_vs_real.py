import dataclasses

import numpy as np
import pytest

from robowm.artefacts import read_artefact
from robowm.data.sidecar import read_sidecar
from robowm.data.store import EpisodeStore, StoreSpec
from robowm.errors import UserError
from robowm.evaluation import imagined_vs_real
from robowm.rollout import run_episodes
from tests.evaluation.test_collect import RecordedEnv
from tests.fakes import NoisePolicy

VERDICTS = [1, 1, 1, 0, 0, 1, 1]  # of imagination, for seeds 30,000 ...; in reality every third seed fails (30,000, 30,003, 30,006)


def imagined_store(path, verdicts=VERDICTS):
    env = RecordedEnv(3)
    made = EpisodeStore.create(path, StoreSpec(**env.spec()))
    for i, rollout in enumerate(run_episodes(env, NoisePolicy(), range(30_000, 30_000 + len(verdicts)), max_steps=6 + 1, kind="rollout")):
        episode = rollout.episode
        source = dataclasses.replace(episode.source, kind="imagined", world_model="wm")
        made.append(dataclasses.replace(episode, source=source, success=float(verdicts[i]), judged_by="judge", reward=episode.reward * 0))
    return made


def compare(tmp_path, n=3, **options):
    return imagined_vs_real.run(env=RecordedEnv(n), store=tmp_path / "imagined", output_dir=tmp_path / "out", **options)


def test_the_false_success_rate_is_measured_in_the_simulator(tmp_path):
    store = imagined_store(tmp_path / "imagined")
    summary = compare(tmp_path)
    assert summary["confusion"] == {"true_positive": 3, "false_positive": 2, "true_negative": 1, "false_negative": 1}
    (row,) = summary["rows"]
    assert (row["metric"], row["value"], row["n"]) == ("false_success/imagined", 0.4, 5) and row["low"] < 0.4 < row["high"]
    held = read_sidecar(store, "simulator")["success"].reshape(7, 7)
    np.testing.assert_array_equal(held[0], 0)
    np.testing.assert_array_equal(held[1], [0, 0, 0, 0, 1, 1, 1])
    assert read_artefact(tmp_path / "out", "imagined_vs_real")["inputs"] == {"imagined": store.fingerprint()}
    names = sorted(path.name for path in (tmp_path / "out" / "videos").iterdir())
    assert names == [f"{kind}_success_{i:06d}.mp4" for kind, i in [("false", 0), ("false", 6), ("true", 1), ("true", 2), ("true", 5)]]


def test_an_interrupted_comparison_goes_on(tmp_path):
    imagined_store(tmp_path / "imagined")

    class Dies(RecordedEnv):
        batches = 0

        def reset(self, seeds):
            self.batches += 1
            if self.batches == 2:
                raise KeyboardInterrupt
            return super().reset(seeds)

    with pytest.raises(KeyboardInterrupt):
        imagined_vs_real.run(env=Dies(3), store=tmp_path / "imagined", output_dir=tmp_path / "out")
    summary = compare(tmp_path, n=4)
    assert sum(summary["confusion"].values()) == 7
    assert compare(tmp_path) == summary


def test_without_failures_recall_is_said_to_be_unknown(tmp_path):
    imagined_store(tmp_path / "imagined", [1, 1])
    assert any("recall in imagination was not measured" in note for note in compare(tmp_path)["notes"])


def test_real_episodes_and_empty_stores_are_refused(tmp_path):
    env = RecordedEnv(3)
    made = EpisodeStore.create(tmp_path / "imagined", StoreSpec(**env.spec()))
    with pytest.raises(UserError, match="holds no episodes"):
        compare(tmp_path)
    made.append(next(run_episodes(env, NoisePolicy(), [30_000], max_steps=5, kind="rollout")).episode)
    with pytest.raises(UserError, match="is a rollout, expected imagined"):
        compare(tmp_path)
