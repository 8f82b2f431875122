"""The bench: its parts at their smallest, what its numbers mean, and a results file in the end."""

import inspect
import json

import numpy as np
import pytest

from real_robot import bench
from real_robot.benches.collection import growth
from real_robot.benches.stage import quantile_row
from real_robot.commands import main_of
from robowm.apps.harness import RESERVED, config_folder
from robowm.apps.help import compose_config
from robowm.report.schema import read_results


def test_emergency_stops_kills_and_a_collection_are_measured_into_a_results_file_and_done_once(tmp_path, capfd):
    words = ["parts=[estop,kills,collection]", "presses=3", "kill_points=1", "collection_s=5", f"output_dir={tmp_path}"]
    assert main_of(bench.APP, words) == 0
    results = read_results(tmp_path / "results.json")
    slow = {row["metric"]: row for row in results["rows"] if row["arm"] == "estop_slow_reads"}
    rows = {row["metric"]: row for row in results["rows"] if row["arm"] in ("estop", "collect")}
    assert rows["estop_ms@p50"]["value"] < slow["estop_ms@max"]["value"] and slow["estop_ms@p50"]["n"] == 3
    assert any("estop_slow_reads: a read of the robot takes 100 ms" in note for note in results["notes"])
    assert rows["estop_ms@max"]["value"] >= rows["estop_ms@p50"]["value"] > 0 and rows["estop_ms@p50"]["n"] == 3
    assert rows["kill_points"]["value"] == 1 and rows["episodes_lost_beyond_bound"]["value"] == 0
    assert results["study"] == "collection" and any("Not run: round" in note for note in results["notes"])
    assert rows["labels_dropped"]["value"] == 0 and rows["labels_dropped"]["n"] > 0 and rows["load_average"]["value"] > 0
    assert rows["camera_hz/wrist"]["value"] > 1 and 0 <= rows["repeated_pictures/external"]["value"] < 1
    before = (tmp_path / "kills" / "artefact.json").stat().st_mtime_ns
    assert main_of(bench.APP, words) == 0
    assert (tmp_path / "kills" / "artefact.json").stat().st_mtime_ns == before
    assert len((tmp_path / "estop" / "presses.jsonl").read_text().splitlines()) == 6
    assert json.loads((tmp_path / "kills" / "kills.jsonl").read_text())["lost_beyond_bound"] == 0


def test_memory_that_grows_is_seen_and_the_first_saves_are_not_growth():
    flat = [{"pid": 1, "seconds": 2.0 * i, "rss_mib": 600.0 if i < 40 else 800.0} for i in range(500)]
    leak = [{**line, "rss_mib": line["rss_mib"] + 0.1 * i} for i, line in enumerate(flat)]
    other = [{"pid": 0, "seconds": 1.0, "rss_mib": 5.0}]  # a run that was killed before
    assert growth(other + flat)[0].value == 0 and growth(leak)[0].value == pytest.approx(0.1 * 382, rel=0.1)
    assert growth(flat)[1].value == 800 and [row.metric for row in growth(flat[:70])] == ["rss_mib/collect@max"]  # all of it warm-up


def test_quantiles_lie_within_their_intervals():
    values = np.random.default_rng(0).exponential(1.0, 300)
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        row = quantile_row("estop", f"estop_ms@{name}", values, share)
        assert row.low <= row.value <= row.high and row.value == pytest.approx(np.quantile(values, share))


def test_keys_are_the_keywords_of_run_and_a_wrong_part_is_one_line(tmp_path, capfd):
    config = compose_config(bench.APP.config_name, config_folder(), [])
    keys = {key for key in config if key not in (*RESERVED, "hydra")} | {"output_dir"}
    assert keys == set(inspect.signature(bench.run).parameters)
    assert main_of(bench.APP, ["parts=[kill]", f"output_dir={tmp_path}"]) == 2
    assert "did you mean 'kills'" in capfd.readouterr().err
