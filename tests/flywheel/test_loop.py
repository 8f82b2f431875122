import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robowm.errors import UserError
from robowm.flywheel.ledger import Ledger
from robowm.report import units
from tests.flywheel.fake_verbs import STAGES, flywheel, value_of


def statuses(result):
    return {name.split("/")[1]: entry["status"] for name, entry in result["stages"].items()}


def changed(name, **overrides):
    return {**STAGES, name: {**STAGES[name], "overrides": {**STAGES[name]["overrides"], **overrides}}}


def test_stages_run_once_and_are_skipped_afterwards(tmp_path):
    assert set(statuses(flywheel(tmp_path)).values()) == {"done"}
    assert value_of(tmp_path, "push-0/sum") == 1 + 10 + 1 + 20
    assert set(statuses(flywheel(tmp_path)).values()) == {"skipped"}
    assert all(path.read_text() == "x" for path in tmp_path.glob("push-0/*/calls"))


def test_a_changed_request_reruns_what_depends_on_it_and_keeps_the_old_result(tmp_path):
    flywheel(tmp_path)
    again = statuses(flywheel(tmp_path, changed("base", value=11)))
    assert again == {"demos": "skipped", "base": "done", "side": "skipped", "sum": "done"}
    assert value_of(tmp_path, "push-0/sum") == 33
    (old,) = tmp_path.glob("push-0/base.old-*")
    assert value_of(old, ".") == 11


def test_a_rerun_that_gives_the_same_result_stops_there(tmp_path):
    flywheel(tmp_path)
    again = statuses(flywheel(tmp_path, changed("base", pause=0)))
    assert again == {"demos": "skipped", "base": "done", "side": "skipped", "sum": "skipped"}


def test_a_changed_default_counts_and_a_device_does_not(tmp_path):
    flywheel(tmp_path, compose=lambda verb, words: {"words": list(words), "device": "cpu", "part": {"workers": 1}})
    same = flywheel(tmp_path, compose=lambda verb, words: {"words": list(words), "device": "cuda", "part": {"workers": 2}})
    assert set(statuses(same).values()) == {"skipped"}
    other = flywheel(tmp_path, compose=lambda verb, words: {"words": list(words), "device": "cpu", "part": {"workers": 1, "lr": 2}})
    assert set(statuses(other).values()) == {"done"}


def test_a_result_that_vanished_is_made_again(tmp_path):
    flywheel(tmp_path)
    (tmp_path / "push-0" / "side" / "artefact.json").unlink()
    assert statuses(flywheel(tmp_path)) == {"demos": "skipped", "base": "skipped", "side": "done", "sum": "skipped"}


def test_a_unit_kept_and_restored_elsewhere_counts_as_done(tmp_path):
    flywheel(tmp_path / "here")
    units.keep(tmp_path / "here", "push-0", tmp_path / "kept")
    units.restore(tmp_path / "kept", tmp_path / "there")
    assert set(statuses(flywheel(tmp_path / "there")).values()) == {"skipped"}


def test_a_failure_shows_its_last_lines_and_stops_only_what_needs_it(tmp_path, capsys):
    (tmp_path / "break-base").write_text("")
    with pytest.raises(UserError, match=r"1 stage\(s\) failed \(push-0/base\), 1 wait"):
        flywheel(tmp_path)
    assert "the reason" in capsys.readouterr().out
    assert value_of(tmp_path, "push-0/side") == 21
    (tmp_path / "break-base").unlink()
    assert statuses(flywheel(tmp_path)) == {"demos": "skipped", "base": "done", "side": "skipped", "sum": "done"}


def test_a_stage_list_that_does_not_compose_starts_nothing(tmp_path):
    def compose(verb, words):
        raise UserError("unknown key")

    with pytest.raises(UserError, match="unknown key"):
        flywheel(tmp_path, compose=compose)
    assert list(tmp_path.iterdir()) == []


def test_final_stages_see_all_units_also_those_of_other_flywheels(tmp_path):
    final = {"gather": {"verb": "make", "overrides": {"value": 1, "root": "{output_dir}"}}}
    flywheel(tmp_path, train_seed=[0, 1], final=final)
    assert value_of(tmp_path, "push-1/sum") == 232
    assert flywheel(tmp_path, train_seed=1, final=final)["stages"]["all/gather"]["status"] == "skipped"
    later = flywheel(tmp_path, task="insert", train_seed=1, final=final, publish={"copy.json": "all/gather/artefact.json"})
    assert (tmp_path / "copy.json").read_text() == (tmp_path / "all" / "gather" / "artefact.json").read_text()
    assert later["stages"]["all/gather"]["status"] == "done"
    assert f"root={tmp_path}" in (tmp_path / "logs" / "all.gather.log").read_text()


def test_final_stages_wait_for_units_that_are_not_finished_and_their_words_are_shown(tmp_path, capsys):
    final = {"gather": {"verb": "make", "overrides": {"value": 1, "say": "the table"}}}
    (tmp_path / "break-base").write_text("")
    with pytest.raises(UserError, match="failed"):
        flywheel(tmp_path, final=final)
    (tmp_path / "break-base").unlink()
    result = flywheel(tmp_path, task="insert", final=final)
    assert "all/gather" not in result["stages"]
    assert "not gathered yet: push-0 not finished" in capsys.readouterr().out
    assert flywheel(tmp_path, final=final)["stages"]["all/gather"]["status"] == "done"
    assert "\nthe table\n" in capsys.readouterr().out


def test_gathering_asks_of_a_unit_only_for_the_stages_of_its_training_seed(tmp_path):
    final = {"gather": {"verb": "make", "overrides": {"value": 1}}}
    stages = {name: {**node, "train_seeds": [0]} if name == "sum" else node for name, node in STAGES.items()}
    assert "push-1/sum" not in flywheel(tmp_path, stages, train_seed=1, final=final)["stages"]
    result = flywheel(tmp_path, stages, train_seed=0, final=final)["stages"]
    assert {result[name]["status"] for name in ("push-0/sum", "all/gather")} == {"done"}


def test_two_stages_run_side_by_side_with_one_thread_each(tmp_path):
    slow = {name: {"verb": "make", "overrides": {"value": 1, "pause": 1.5}} for name in ("one", "two")}
    began = time.monotonic()
    flywheel(tmp_path / "both", slow, workers=2)
    both = time.monotonic() - began
    flywheel(tmp_path / "alone", slow, workers=1)
    assert time.monotonic() - began - both > both + 1.0


def test_kill_9_takes_the_stages_along_and_the_same_command_goes_on(tmp_path):
    script = str(Path(__file__).with_name("fake_verbs.py"))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = subprocess.Popen([sys.executable, script, "flywheel", str(tmp_path)], env=environment, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while "push-0/side" not in Ledger(tmp_path).results() or not (tmp_path / "push-0" / "base" / "calls").exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 10
    while children := [pid for pid in os.listdir("/proc") if pid.isdigit() and str(tmp_path) in command_of(pid)]:
        assert time.monotonic() < until, children
        time.sleep(0.1)
    slow = {name: {**node, "overrides": {**node["overrides"], "pause": 20 if name == "base" else 0}} for name, node in STAGES.items()}
    (tmp_path / "push-0" / "base" / "kept").write_text("half done")
    again = flywheel(tmp_path, slow, command=(sys.executable, script, "quick"))
    assert statuses(again) == {"demos": "skipped", "base": "done", "side": "skipped", "sum": "done"}
    assert (tmp_path / "push-0" / "base" / "kept").exists()
    assert (tmp_path / "push-0" / "base" / "calls").read_text() == "xx"


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
