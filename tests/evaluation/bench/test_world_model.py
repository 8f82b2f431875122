import json
from dataclasses import replace

import numpy as np
import pytest

from robowm.artefacts import read_artefact
from robowm.data.fake import fake_episode, fake_spec, fake_store
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.evaluation.bench import world_model as bench
from robowm.evaluation.bench.inverse import InverseDynamics
from robowm.evaluation.bench.long_roll import LongRoll
from robowm.evaluation.world_models import outcomes
from robowm.metrics.stats import sign_test
from robowm.report.folders import find_artefacts
from robowm.report.gather import gather
from robowm.report.page import build
from robowm.report.render import flywheel_study
from robowm.report.schema import findings
from tests.evaluation.bench.fakes import load

TASK = "fake/move"


def halves(episode):
    """Regimes: late frames, and frames that episodes of an even seed alone have."""
    late = np.arange(len(episode) + 1) > 4
    return {"late": late, "even": late & (episode.source.seed % 2 == 0)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("stores")
    return {
        "expert": fake_store(root / "a", [8, 9, 12, 8, 10], first_seed=100_000).path,
        "open_loop": fake_store(root / "b", [8, 8, 8], first_seed=100_100).path,
        "train": fake_store(root / "train", [9, 9], first_seed=0).path,
    }


def compare(stores, output_dir, /, **changes):
    settings = {
        "world_models": {"still": "m/held", "moving": "m/lively"},
        "stores": {name: stores[name] for name in ("expert", "open_loop")},
        "task": TASK,
        "load": load,
        "horizon": 8,
        "regimes": halves,
        "train_stores": [{"path": stores["train"]}],
        "inverse": InverseDynamics(steps=2, batch_size=2, width=8, device="cpu"),
        "long_roll": LongRoll(frames=40, episodes=2),
        "strips": 1,
    }
    return bench.run(output_dir=output_dir, **{**settings, **changes})


@pytest.fixture(scope="module")
def found(stores, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "out"
    return folder, compare(stores, folder)


def row(found, arm, metric, task=TASK):
    return next(r for r in found["rows"] if (r["task"], r["arm"], r["metric"]) == (task, arm, metric))


def test_every_model_and_its_controls_stand_on_every_store(found):
    _, summary = found
    own = {"still", "copy_last", "shuffled_actions", "zero_actions", "real_frames"}
    arms = own | {"moving", "moving:shuffled_actions", "moving:zero_actions"}
    for task, n in ((TASK, 5), (f"{TASK}:open_loop", 3)):
        assert {r["arm"] for r in summary["rows"] if r["task"] == task} == arms
        assert row(summary, "moving", "psnr/wrist@mean", task)["n"] == n
        still, copied = (row(summary, arm, "psnr/wrist@mean", task)["value"] for arm in ("still", "copy_last"))
        assert still == copied, "this model is the control"


def test_pairs_count_wins_and_give_the_exact_p(found):
    folder, summary = found
    pair = next(p for p in summary["pairs"] if (p["task"], p["a"], p["b"], p["metric"]) == (TASK, "moving", "still", "psnr/wrist@mean"))
    lines = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    psnr = {arm: outcomes(lines, TASK, arm, "psnr/wrist@mean")[0] for arm in ("moving", "still")}
    signs = [np.sign(psnr["moving"][seed] - psnr["still"][seed]) for seed in psnr["still"]]
    assert len(signs) == pair["n"] == 5
    assert (pair["wins"], pair["losses"]) == (signs.count(1) / 5, signs.count(-1) / 5)
    assert pair["p"] == sign_test(signs.count(1), signs.count(-1))


def test_a_regime_is_the_mean_of_its_frames_and_counts_episodes_that_have_some(found, stores):
    _, summary = found
    late = row(summary, "moving", "psnr/external@late")
    assert late["n"] == 5 and row(summary, "moving", "psnr/external@even")["n"] == 3
    whole, second = (row(summary, "moving", f"psnr/external@{at}")["value"] for at in ("mean", 8))
    assert late["value"] == pytest.approx(second, abs=1e-4) and abs(late["value"] - whole) > 1e-3


def test_action_errors_have_their_floor_and_controls(found):
    _, summary = found
    metric = "action_error/open_loop"
    errors = {r["arm"]: r["value"] for r in summary["rows"] if r["metric"] == metric}
    assert {"still", "moving", "copy_last", "shuffled_actions", "real_frames"} <= errors.keys() and min(errors.values()) > 0
    assert errors["still"] == errors["copy_last"]
    assert any((p["a"], p["b"], p["metric"]) == ("moving", "real_frames", metric) for p in summary["pairs"])


def test_a_frozen_model_is_flagged_and_a_lively_one_is_not(found):
    _, summary = found
    assert row(summary, "still", "collapsed/long_roll")["value"] == 1 and row(summary, "moving", "collapsed/long_roll")["value"] == 0
    assert [note.split()[1] for note in summary["notes"] if "collapsed" in note] == ["still"]


def test_the_report_takes_it_over_and_draws_it(found):
    folder, summary = found
    study = flywheel_study(folder)
    results = study.results
    assert findings(results) == []
    assert len(results["pairs"]) == len(summary["pairs"]) and results["eval_seeds"] == [100_000, 100_102]
    assert 0 < results["seconds"] < 3600
    assert {curve.arm for curve in study.curves} >= {"still", "moving", "copy_last"}
    assert {strip.arm for strip in study.strips} == {"still", "moving"}
    page = build(replace(study, strips=[]))
    for words in ("Following actions", "Long rolls", "moving minus still, psnr/wrist@mean", "frames: late", "collapsed in 2 of 2"):
        assert words in page, words


def test_recorded_starts_outside_the_evaluation_range_have_none_in_the_results(stores, tmp_path):
    held_out = fake_store(tmp_path / "tuning", [8, 8], first_seed=50_000).path
    compare(stores, tmp_path / "out", stores={"expert": held_out}, train_stores=[], long_roll=LongRoll(frames=0))
    results = gather(tmp_path / "out", study="x", command="robowm bench")
    assert results["eval_seeds"] == [] and findings(results) == []
    assert any("not asked for: action errors (train_stores), long rolls" in note for note in results["notes"])


def test_several_temperatures_name_their_arms_and_are_compared_at_the_same(stores, tmp_path):
    found = compare(stores, tmp_path, temperatures=[1.0, 0.4], train_stores=[], long_roll=LongRoll(frames=0), controls=[])
    assert {(p["a"], p["b"]) for p in found["pairs"]} == {("moving@t1", "still@t1"), ("moving@t0.4", "still@t0.4")}
    inputs = {record.record["inputs"]["world_model"] for record in find_artefacts(tmp_path) if record.kind == "world_model_evaluation"}
    assert inputs == {"held", "lively", "held-temperature0.4", "lively-temperature0.4"}


def test_a_cut_off_run_goes_on_with_the_next_unit(stores, tmp_path, monkeypatch):
    asked = []

    def counted(path, **settings):
        model = load(path, **settings)
        predict = model.predict
        model.predict = lambda *words: asked.append(path) or predict(*words)
        return model

    real = bench.run_long_roll
    monkeypatch.setattr(bench, "run_long_roll", lambda *words: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        compare(stores, tmp_path / "cut", load=counted, train_stores=[])
    monkeypatch.setattr(bench, "run_long_roll", real)
    before = len(asked)
    compare(stores, tmp_path / "cut", load=counted, train_stores=[])
    assert before > 20 and len(asked) == before + 2 * 10, "only the two long rolls of ten chunks were left"
    read_artefact(tmp_path / "cut", bench.KIND)
    compare(stores, tmp_path / "cut", load=counted, train_stores=[])
    assert len(asked) == before + 20


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pairs": [{"a": "movin", "b": "still"}]}, "pairs names 'movin'.*did you mean 'moving'"),
        ({"horizon": 16}, "has 0 episodes of at least horizon=16"),
        ({"counterfactual": 4}, "counterfactual=4 executes actions in the simulator; give env"),
        ({"world_models": {"copy_last": "m/held"}}, "'copy_last' cannot name an arm"),
        ({"world_models": {}}, "world_models names none"),
        ({"temperatures": [1.0, 1.0]}, "different ones"),
        ({"controls": ["copy_first"]}, "no control is named 'copy_first'"),
        ({"stores": {}}, "stores names none"),
    ],
)
def test_requests_that_cannot_be_met_are_refused_at_once(stores, tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        compare(stores, tmp_path, **changes)
    assert not (tmp_path / "units").exists()


def test_data_that_cannot_be_compared_are_refused(stores, tmp_path):
    with pytest.raises(UserError, match=r"train_stores\.0 .* is the held-out store 'open_loop' as well"):
        compare(stores, tmp_path / "a", train_stores=[{"path": stores["open_loop"]}])
    twice = EpisodeStore.create(tmp_path / "twice", fake_spec())
    for _ in range(2):
        twice.append(fake_episode(twice.spec, 8, 100_007))
    with pytest.raises(UserError, match="holds 2 episodes of start seed 100007"):
        compare(stores, tmp_path / "b", stores={"expert": twice.path})
    with pytest.raises(UserError, match="no camera of one size in common"):
        compare(stores, tmp_path / "c", load=smaller)


def smaller(path, **settings):
    model = load(path, **settings)
    if model.name == "lively":
        model.cameras = {"external": (16, 16)}
    return model


def test_a_regime_that_the_episodes_to_be_recorded_will_not_have_is_refused_before_work_begins(stores, tmp_path):
    class Blind:
        n, fps, task_name = 2, 10.0, TASK

        def spec(self):
            return {"cameras": {"external": (32, 32)}}

    def seen_by_the_wrist(episode):
        if "wrist" not in episode.frames:
            raise UserError("the wrist camera is missing")
        return halves(episode)

    with pytest.raises(UserError, match="the wrist camera is missing"):
        compare(stores, tmp_path / "out", regimes=seen_by_the_wrist, env=Blind())
    assert not (tmp_path / "out").exists()
