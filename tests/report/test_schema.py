import copy
import json

import pytest

from robowm.errors import UserError
from robowm.report.schema import check_results, findings, read_results
from tests.report.synthetic import results


def test_a_complete_file_has_no_findings():
    assert findings(results(("tabletop/pick_place", "tabletop/push"))) == []


def test_a_pair_may_hold_p_and_a_metric_may_name_a_regime():
    found = results()
    found["pairs"][0]["p"] = 1e-9
    found["pairs"][1]["p"] = None
    found["rows"].append({**found["rows"][0], "metric": "psnr/external@contact"})
    assert findings(found) == []


def test_predictions_of_recorded_episodes_need_no_start_seeds():
    found = results()
    found["rows"] = [row for row in found["rows"] if not row["metric"].startswith("success")]
    assert findings({**found, "pairs": [], "eval_seeds": []}) == []


def change(path, value):
    broken = copy.deepcopy(results())
    at = broken
    for step in path[:-1]:
        at = at[step]
    if value is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return findings(broken)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["commit"], KeyError, "lacks 'commit'"),
        (["commit"], "", "commit is empty"),
        (["extra"], 1, "unknown key 'extra'"),
        (["date"], "yesterday", "YYYY-MM-DD"),
        (["seconds"], float("nan"), "seconds is nan"),
        (["train_seeds"], [0, 0], "different whole numbers"),
        (["eval_seeds"], [60000, 60499], "outside the evaluation range"),
        (["eval_seeds"], [100000, 110000], "outside the evaluation range"),
        (["eval_seeds"], [100000], "[first, last]"),
        (["machine", "cpus"], "2", "machine.cpus is '2'"),
        (["rows", 0, "n"], 0, "n is 0"),
        (["rows", 0, "n"], True, "rows[0].n is True"),
        (["rows", 1, "value"], 0.9, "out of order"),
        (["rows", 1, "value"], float("inf"), "not finite"),
        (["rows", 0, "low"], -0.1, "leaves [0, 1]"),
        (["rows", 0, "metric"], "psnr", "metric is 'psnr'"),
        (["rows", 0, "metric"], "psnr/external", "metric is 'psnr/external'"),
        (["rows", 0, "task"], "pick_place", "suite/task"),
        (["rows", 0, "arm"], "base", "appears more than once"),
        (["pairs", 0, "low"], 0.3, "out of order"),
        (["pairs", 0, "wins"], 0.99, "not shares of n"),
        (["pairs", 0, "p"], 1.2, "has p 1.2"),
        (["pairs", 0, "p"], "small", "pairs[0].p is 'small'"),
        (["eval_seeds"], [], "[first, last]"),
        (["pairs", 0, "b"], "+real+imagined", "with itself"),
        (["pairs", 0, "b"], "base_lnger", "no row of arm 'base_lnger'"),
        (["notes"], [1], "notes[0] is not text"),
        (["rows"], {}, "results.rows"),
    ],
)
def test_each_fault_is_named(path, value, said):
    assert any(said in line for line in change(path, value)), change(path, value)


def test_a_missing_file_names_the_nearest_one(tmp_path):
    (tmp_path / "loop_small.json").write_text(json.dumps(results()))
    with pytest.raises(UserError, match=r"did you mean 'loop_small\.json'"):
        read_results(tmp_path / "lop_small.json")


def test_half_a_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(results())[:200])
    with pytest.raises(UserError, match="not valid JSON") as error:
        read_results(tmp_path / "a.json")
    assert "\n" not in str(error.value)


def test_the_message_says_how_many_findings_there_are():
    broken = results()
    for row in broken["rows"][:5]:
        row["n"] = 0
    with pytest.raises(UserError, match="and 2 more"):
        check_results(broken)
