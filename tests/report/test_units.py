import json

import pytest

from robowm.errors import UserError
from robowm.report import units
from robowm.report.folders import recorded_report, stages_of
from robowm.report.gather import gather
from tests.report.test_gather import make


@pytest.fixture
def study(tmp_path):
    for seed in (0, 1):
        folder = tmp_path / "study" / f"counter-{seed}"
        make(folder, "base", lambda s: 5 if s % 4 == 0 else 99, train_seed=seed)
        make(folder, "+real", lambda s: 5 if s % 4 < 3 else 99, train_seed=seed)
    return tmp_path / "study"


def report(folder):
    return gather(folder, study="fake", command="robowm flywheel", pairs=[{"a": "+real", "b": "base"}])


def test_a_report_from_kept_units_is_the_report_from_the_run(study, tmp_path):
    kept = [units.keep(study, f"counter-{seed}", tmp_path / "kept") for seed in (0, 1)]
    assert all(path.stat().st_size < 20_000 for path in kept)
    assert units.restore(tmp_path / "kept", tmp_path / "elsewhere") == ["counter-0", "counter-1"]
    ours, theirs = report(study), report(tmp_path / "elsewhere")
    assert (ours["rows"], ours["pairs"]) == (theirs["rows"], theirs["pairs"]) and ours["rows"]


def test_restored_stages_have_no_start(study, tmp_path):
    for seed in (0, 1):
        entry = study / "ledger" / f"counter-{seed}" / "base.json"
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(json.dumps({"output": "f", "seconds": 100.0}))
        units.keep(study, f"counter-{seed}", tmp_path / "kept")
    units.restore(tmp_path / "kept", tmp_path / "there")
    assert [(stage.unit, stage.start, stage.seconds) for stage in stages_of(tmp_path / "there")] == [
        ("counter-0", None, 100),
        ("counter-1", None, 100),
    ]


def test_what_the_report_asked_for_is_kept_too(study, tmp_path):
    asked = {"verb": "report", "overrides": [], "config": {"arms": ["base"], "study": "fake"}}
    (study / "all" / "report").mkdir(parents=True)
    (study / "all" / "report" / "command.json").write_text(json.dumps(asked))
    units.keep(study, "counter-0", tmp_path / "kept")
    units.restore(tmp_path / "kept", tmp_path / "there")
    assert recorded_report(tmp_path / "there") == asked["config"]


def test_the_same_unit_gives_the_same_bytes_and_restoring_overwrites_nothing(study, tmp_path):
    first = units.keep(study, "counter-0", tmp_path / "kept").read_bytes()
    assert units.keep(study, "counter-0", tmp_path / "again").read_bytes() == first
    assert units.restore(tmp_path / "kept", study) == []


def test_what_is_missing_is_named(study, tmp_path, capsys):
    with pytest.raises(UserError, match="counter-7"):
        units.keep(study, "counter-7", tmp_path)
    assert units.main(["restore", str(tmp_path / "none"), str(study)]) == 2
    assert "holds no kept unit" in capsys.readouterr().err
    assert units.main(["keep"]) == 2
    (tmp_path / "half").mkdir()
    whole = units.keep(study, "counter-0", tmp_path / "kept").read_bytes()
    (tmp_path / "half" / "counter-9.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"counter-9.zip cannot be unpacked"):
        units.restore(tmp_path / "half", study)
    assert not list(study.glob("*counter-9*")) and not list((tmp_path / "kept").glob(".*"))


def test_an_unfinished_unit_is_not_kept(study, tmp_path):
    entry = study / "ledger" / "counter-0" / "base.json"
    entry.parent.mkdir(parents=True)
    entry.write_text(json.dumps({"request": "r", "inputs": {}, "output": None, "seconds": 0.0}))
    with pytest.raises(UserError, match="counter-0 is not finished: base began"):
        units.keep(study, "counter-0", tmp_path / "kept")
    assert not (tmp_path / "kept" / "counter-0.zip").exists()
