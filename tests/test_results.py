"""Every committed results file follows the schema, and what it says about itself can be found."""

from pathlib import Path

import pytest

from robowm.report.schema import read_results

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "results").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_committed_results_file_follows_the_schema(path):
    results = read_results(path)
    assert results["study"] == path.stem, "a results file is named after its study"
    assert results["command"].startswith(("robowm ", "make ", "python -m real_robot.")), results["command"]
    assert results["rows"]


def test_results_hold_nothing_but_results_files_and_kept_units():
    strangers = [path.name for path in (ROOT / "results").glob("*") if path.suffix != ".json" and path.name != "units"]
    strangers += [path.name for path in (ROOT / "results" / "units").glob("*/*") if path.suffix != ".zip"]
    assert strangers == []
