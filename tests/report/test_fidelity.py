import json

import numpy as np
import pytest

from robowm.errors import UserError
from robowm.metrics.stats import outcome_pair, sign_test
from robowm.report import fidelity
from robowm.report.folders import find_artefacts
from robowm.report.schema import findings
from tests.report.synthetic import results

TASK = "tabletop/pick_place:open_loop"
METRICS = [f"{metric}/wrist@{at}" for metric in ("psnr", "lpips") for at in ("mean", *range(4, 25, 4))]


CONTROLLED = {"world_model": 2.0, "copy_last": 0.0, "shuffled_actions": 0.0}


def write(folder, train_seed, shift=0.0, starts=range(60_000, 60_020), skip=(), arms=CONTROLLED, unseen=None):
    """A finished evaluation in which the model leads by 2 dB, or ``arms`` lead by what they say (of each start), and the baselines tie."""
    folder = folder / f"unit-{train_seed}" / "evaluate-world-model"
    (folder / "strips").mkdir(parents=True)
    record = {"kind": "world_model_evaluation", "fingerprint": f"w{train_seed}", "inputs": {}, "config": {"train_seed": train_seed}}
    record["made_with"] = {"commit": "abc", "renderer": ""}
    (folder / "artefact.json").write_text(json.dumps(record))
    lines = []
    for arm, lead in arms.items():
        for seed in starts:
            if (arm, seed) not in skip:
                more = lead[seed] if isinstance(lead, dict) else lead
                base = np.random.default_rng(seed).normal(20 + shift, 1)
                values = {m: base + more if m.startswith("psnr") else 0.1 for m in METRICS}
                if unseen is not None:
                    values["psnr_object/wrist@mean"] = None if seed in unseen else base + more
                lines.append({"task": TASK, "arm": arm, "train_seed": train_seed, "seed": seed, "values": values})
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    frames = {f"{side}/wrist": np.full((25, 8, 8, 3), 10, np.uint8) for side in ("truth", "predicted")}
    np.savez_compressed(folder / "strips" / "open_loop_0.npz", chunk=4, fps=10.0, task=np.array(TASK), **frames)


def test_pairs_compare_episode_by_episode(tmp_path):
    write(tmp_path, 0)
    found = fidelity.pairs(fidelity.read_scores(find_artefacts(tmp_path)))
    psnr = next(pair for pair in found if (pair["b"], pair["metric"]) == ("copy_last", "psnr/wrist@mean"))
    np.testing.assert_allclose([psnr["diff"], psnr["low"], psnr["high"]], 2.0)  # the episodes' spread cancels
    assert (psnr["n"], psnr["wins"], psnr["losses"]) == (20, 1.0, 0.0)
    tie = next(pair for pair in found if pair["metric"] == "lpips/wrist@mean")
    assert (tie["diff"], tie["wins"], tie["losses"]) == (0.0, 0.0, 0.0)


def test_two_world_models_widen_the_interval(tmp_path):
    write(tmp_path, 0)
    write(tmp_path, 1, shift=3.0)
    rows = fidelity.rows(fidelity.read_scores(find_artefacts(tmp_path)))
    row = next(row for row in rows if (row["arm"], row["metric"]) == ("copy_last", "psnr/wrist@mean"))
    assert row["n"] == 40 and row["low"] < 20.5 and row["high"] > 22.5


@pytest.mark.parametrize("seeds", [1, 3])
def test_pairs_agree_with_those_of_policies_and_count_each_start_once(tmp_path, seeds):
    starts, rng = range(60_000, 60_030), np.random.default_rng(5)
    leads = {seed: dict(zip(starts, rng.normal(0.2, 1, 30) + seed, strict=True)) for seed in range(seeds)}
    for seed in leads:
        write(tmp_path, seed, starts=starts, arms={"world_model": leads[seed], "copy_last": dict.fromkeys(starts, 0.0)})
    found = fidelity.pairs(fidelity.read_scores(find_artefacts(tmp_path)))
    pair = next(p for p in found if p["metric"] == "psnr/wrist@mean")
    reference = outcome_pair(TASK, "a", "b", "psnr", leads, {seed: dict.fromkeys(starts, 0.0) for seed in leads}, seed=1)
    assert (pair["n"], pair["wins"], pair["losses"], pair["p"]) == (30, reference.wins, reference.losses, reference.p)
    np.testing.assert_allclose([pair["diff"], pair["low"], pair["high"]], [reference.diff, reference.low, reference.high], atol=0.06)
    won = sum(np.mean([leads[seed][start] for seed in leads]) > 0 for start in starts)
    assert pair["p"] == sign_test(won, 30 - won)


def test_a_results_file_keeps_some_frames_and_curves_show_all(tmp_path):
    write(tmp_path, 0)
    found = fidelity.read_scores(find_artefacts(tmp_path))
    kept = {row["metric"] for row in fidelity.rows(found) if row["arm"] == "world_model" and row["metric"].startswith("psnr")}
    assert kept == {f"psnr/wrist@{at}" for at in ("mean", 4, 20, 24)}
    curve = next(c for c in fidelity.curves(found) if (c.arm, c.metric) == ("world_model", "psnr"))
    assert curve.frame.tolist() == [4, 8, 12, 16, 20, 24] and curve.camera == "wrist"
    assert findings({**results(), "rows": fidelity.rows(found), "pairs": fidelity.pairs(found)}) == []


def test_arms_on_other_episodes_are_refused(tmp_path):
    write(tmp_path, 0, skip={("copy_last", 60_003)})
    with pytest.raises(UserError, match="copy_last and world_model were evaluated on different episodes"):
        fidelity.read_scores(find_artefacts(tmp_path))


def test_strips_come_with_their_chunk_and_action_set(tmp_path):
    write(tmp_path, 0)
    (strip,) = fidelity.strips(find_artefacts(tmp_path))
    assert (strip.task, strip.chunk, strip.fps) == (TASK, 4, 10.0)
    assert strip.truth["wrist"].shape == (25, 8, 8, 3) and strip.predicted.keys() == {"wrist"}


def test_episodes_without_a_value_are_left_out_of_that_metric_alone(tmp_path):
    write(tmp_path, 0, unseen=range(60_000, 60_008))
    write(tmp_path, 1, unseen=range(60_000, 60_020))  # one training seed's episodes never show it
    found = fidelity.read_scores(find_artefacts(tmp_path))
    rows = {row["metric"]: row for row in fidelity.rows(found) if row["arm"] == "world_model"}
    seen = [np.random.default_rng(seed).normal(20, 1) + 2 for seed in range(60_008, 60_020)]
    row = rows["psnr_object/wrist@mean"]
    assert row["n"] == 12 and row["value"] == pytest.approx(np.mean(seen)) and row["low"] < row["value"] < row["high"]
    assert rows["psnr/wrist@mean"]["n"] == 40
    pair = next(p for p in fidelity.pairs(found) if (p["b"], p["metric"]) == ("copy_last", "psnr_object/wrist@mean"))
    assert (pair["n"], pair["wins"]) == (12, 1.0) and pair["low"] == pytest.approx(2.0)
    assert findings({**results(), "rows": fidelity.rows(found), "pairs": fidelity.pairs(found)}) == []
