import json

import numpy as np
import pytest

from robowm.errors import UserError
from robowm.evaluation.policies import run as evaluate
from robowm.report.folders import find_artefacts
from robowm.report.gather import gather
from robowm.report.media import imagined_videos
from robowm.report.schema import findings
from robowm.report.words import verdict
from tests.fakes import CounterEnv, NoisePolicy
from tests.report.test_fidelity import write

TASK = "fake/counter"


def make(folder, arm, goal, *, train_seed=0, first_seed=100_000, episodes=40, purpose="evaluation"):
    """Evaluate an arm that succeeds where ``goal(seed)`` <= 10 steps."""
    evaluate(
        env=CounterEnv(8, goal=goal),
        policy=NoisePolicy(),
        arm=arm,
        output_dir=folder / f"evaluate-{arm}-{train_seed}-{first_seed}",
        episodes=episodes,
        max_steps=10,
        first_seed=first_seed,
        purpose=purpose,
        train_seed=train_seed,
    )


@pytest.fixture
def unit(tmp_path):
    make(tmp_path, "base", lambda seed: 5 if seed % 4 == 0 else 99)
    make(tmp_path, "+real", lambda seed: 5 if seed % 4 < 3 else 99)
    make(tmp_path, "never_moves", lambda seed: 99)
    return tmp_path


def collect(folder, **options):
    return gather(folder, study="fake", command="robowm flywheel experiment=fake", **options)


def test_rows_hold_the_shares_that_the_episodes_hold(unit):
    found = collect(unit, pairs=[{"a": "+real", "b": "base"}])
    assert findings(found) == []
    values = {row["arm"]: row["value"] for row in found["rows"] if row["metric"] == "success"}
    assert values == {"never_moves": 0.0, "base": 0.25, "+real": 0.75}
    (pair,) = found["pairs"]
    assert (pair["diff"], pair["wins"], pair["losses"], pair["n"]) == (0.5, 0.5, 0.0, 40)
    assert found["eval_seeds"] == [100_000, 100_039] and found["train_seeds"] == [0]
    assert any("One training seed" in note for note in found["notes"])


def test_steps_count_failures_as_the_limit_and_are_paired_on_starts_that_both_solve(tmp_path):
    make(tmp_path, "slow", lambda seed: 8 if seed % 4 < 3 else 99)
    make(tmp_path, "fast", lambda seed: 4 if seed % 2 else 99)
    asked = [{"a": "fast", "b": "slow", "metric": metric} for metric in ("steps_to_success", "steps_to_success@solved")]
    found = collect(tmp_path, pairs=asked)
    assert findings(found) == []
    values = {(row["arm"], row["metric"]): row["value"] for row in found["rows"]}
    assert values["slow", "steps_to_success"] == 0.75 * 8 + 0.25 * 10 and values["fast", "steps_to_success"] == 0.5 * 4 + 0.5 * 10
    assert values["slow", "steps_to_success@solved"] == 8 and values["fast", "steps_to_success@solved"] == 4
    both, solved = found["pairs"]
    assert both["n"] == 40 and both["diff"] == pytest.approx(7 - 8.5)
    assert solved["n"] == 10 and solved["diff"] == -4  # a quarter of the starts is solved by both
    assert verdict(solved) == "better"
    assert verdict(both) == "no sure difference" and both["high"] < 0 and both["p"] == 1  # as many starts lost as won
    assert not [row for row in collect(tmp_path)["rows"] if row["metric"].startswith("steps")]  # nobody asked


def test_two_training_seeds_widen_the_interval_and_count_pairs(unit):
    make(unit, "base", lambda seed: 5 if seed % 4 < 3 else 99, train_seed=1)
    make(unit, "+real", lambda seed: 5 if seed % 4 < 3 else 99, train_seed=1)
    found = collect(unit, pairs=[{"a": "+real", "b": "base"}])
    base = next(row for row in found["rows"] if (row["arm"], row["metric"]) == ("base", "success"))
    assert base["n"] == 80 and base["value"] == 0.5
    assert base["low"] < 0.2 and base["high"] > 0.8  # one seed at .25 and one at .75: starts alone would give .5 +- .11
    assert found["train_seeds"] == [0, 1]


def test_tuning_runs_are_no_results(unit):
    make(unit, "base", lambda seed: 5, first_seed=50_000, purpose="tuning")
    base = next(row for row in collect(unit)["rows"] if (row["arm"], row["metric"]) == ("base", "success"))
    assert base["n"] == 40


def test_arms_with_other_starts_are_refused_by_name(unit):
    make(unit, "+imagined", lambda seed: 5, first_seed=100_001)
    with pytest.raises(UserError, match=r"\+imagined \(training seed 0\) did not run the same starts.*first 100000"):
        collect(unit)


def test_a_missing_arm_is_refused_by_name(unit):
    with pytest.raises(UserError, match=r"lacks the arms base_longer; found never_moves, base, \+real"):
        collect(unit, wanted_arms=["base", "base_longer"])


def test_a_pair_without_its_arm_names_the_nearest(unit):
    with pytest.raises(UserError, match=r"needs the arm 'bse'.*did you mean 'base'"):
        collect(unit, pairs=[{"a": "+real", "b": "bse"}])


def test_an_arm_that_lacks_a_training_seed_is_refused(unit):
    make(unit, "base", lambda seed: 5, train_seed=1)
    with pytest.raises(UserError, match=r"\+real lacks training seeds \[1\]"):
        collect(unit)


def test_unfinished_evaluations_do_not_count(unit):
    folder = unit / "evaluate-+real-0-100000"
    (folder / "artefact.json").unlink()
    with pytest.raises(UserError, match=r"needs the arm '\+real'"):
        collect(unit, pairs=[{"a": "+real", "b": "base"}])


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="no finished evaluation"):
        collect(tmp_path)


def test_the_classifier_is_counted_on_the_task_it_was_trained_for(unit):
    store = {"kind": "store", "fingerprint": "s1", "inputs": {}, "config": {"task": TASK}, "made_with": _made_with(unit)}
    counts = {"true_positive": 30, "false_positive": 1, "true_negative": 40, "false_negative": 10}
    record = {"kind": "success_classifier", "fingerprint": "c1", "inputs": {"rollouts": "s1"}, "config": {}, "made_with": _made_with(unit)}
    for name, content in (("store", store), ("classifier", {**record, "measured": {"confusion": counts, "threshold": 0.8}})):
        (unit / name).mkdir()
        (unit / name / "artefact.json").write_text(json.dumps(content))
    rows = {row["metric"]: row for row in collect(unit)["rows"] if row["arm"] == "success_classifier"}
    np.testing.assert_allclose(rows["precision/success_classifier"]["value"], 30 / 31, atol=1e-6)
    assert rows["recall/success_classifier"]["value"] == 0.75 and rows["recall/success_classifier"]["n"] == 40
    assert rows["recall/success_classifier"]["task"] == TASK


def test_false_successes_are_shares_of_claims_in_the_simulator(unit):
    folder = unit / "imagined_vs_real"
    (folder / "videos").mkdir(parents=True)
    config = {"task": TASK, "arm": "world_model"}
    record = {"kind": "imagined_vs_real", "fingerprint": "i1", "inputs": {}, "config": config, "made_with": _made_with(unit)}
    (folder / "artefact.json").write_text(json.dumps(record))
    lines = [{"index": i, "imagined": int(i < 20), "real": int(i % 4 > 0)} for i in range(30)]  # ten were not claimed
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in ("false_success_000004", "true_success_000001"):
        (folder / "videos" / f"{name}.mp4").write_bytes(b"film")
    (row,) = [row for row in collect(unit)["rows"] if row["metric"] == "false_success/imagined"]
    assert (row["task"], row["arm"], row["value"], row["n"]) == (TASK, "world_model", 0.25, 20)
    films = imagined_videos(find_artefacts(unit))
    assert [film.title for film in films] == ["false success, imagined episode 4", "true success, imagined episode 1"]


def _made_with(folder):
    return json.loads((folder / "evaluate-base-0-100000" / "artefact.json").read_text())["made_with"]


def test_a_study_of_world_models_alone_needs_no_policy(tmp_path):
    for arm, shift in (("base", 0.0), ("rl", 1.0)):
        write(tmp_path / arm, 0, shift=shift, arms={arm: 2.0}, starts=range(108_000, 108_020))
    found = collect(tmp_path, pairs=[{"a": "rl", "b": "base", "metric": "fidelity"}])
    assert findings(found) == [] and found["eval_seeds"] == [108_000, 108_019] and found["train_seeds"] == [0]
    pair = next(pair for pair in found["pairs"] if pair["metric"] == "psnr/wrist@mean")
    assert (pair["a"], pair["b"], pair["wins"], pair["n"]) == ("rl", "base", 1.0, 20) and abs(pair["diff"] - 1) < 1e-6


def test_a_control_of_fewer_training_seeds_is_compared_over_those(tmp_path):
    for seed in (0, 1):
        write(tmp_path / f"base{seed}", seed, arms={"base": 2.0})
    write(tmp_path / "control", 1, shift=1.0, arms={"control": 2.0})
    for a, b, diff in (("control", "base", 1.0), ("base", "control", -1.0)):
        found = collect(tmp_path, pairs=[{"a": a, "b": b, "metric": "fidelity"}])["pairs"]
        pair = next(pair for pair in found if pair["metric"] == "psnr/wrist@mean")
        assert pair["n"] == 20 and pair["diff"] == pytest.approx(diff)


def test_world_models_on_different_episodes_are_not_compared(tmp_path):
    write(tmp_path / "base", 0, arms={"base": 2.0})
    write(tmp_path / "rl", 0, arms={"rl": 2.0}, starts=range(60_000, 60_010))
    with pytest.raises(UserError, match="rl and base were evaluated on different episodes"):
        collect(tmp_path, pairs=[{"a": "rl", "b": "base", "metric": "fidelity"}])
