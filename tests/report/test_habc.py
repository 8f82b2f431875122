"""Critics, weights and recoveries in a report."""

from pathlib import Path

import numpy as np
import pytest

from robowm.report import habc, page
from robowm.report.folders import Artefact
from robowm.report.study import Recovering, Study
from tests.report import synthetic

BINS = {"predicted": [0.1, None, 0.9], "observed": [0.2, None, 0.8], "count": [30, 0, 50]}


def artefact(folder, kind, measured, fingerprint, inputs=None, **config):
    record = {"kind": kind, "fingerprint": fingerprint, "inputs": inputs or {}, "config": config, "measured": measured}
    return Artefact(Path("x") / folder, folder, record)


@pytest.fixture
def artefacts():
    found = []
    for seed, auc in ((0, 0.8), (1, 0.7)):
        found.append(artefact(f"push-{seed}/rollouts", "store", {}, f"store{seed}", task="tabletop/push"))
        made_from, folder = {"store0": f"store{seed}"}, f"push-{seed}"
        measured = {"auc": auc, "ece": 0.1, "correlation": None, "reliability": BINS}
        found.append(artefact(f"{folder}/critics", "critics", measured, f"c{seed}", made_from))
        numbers = {"effective_share": 0.5 + 0.1 * seed, "saturated": 0.03}
        found.append(artefact(f"{folder}/weigh_habc", "weights", numbers, f"w{seed}", made_from, name="habc"))
    return found


def test_rows_say_how_far_critics_can_be_trusted_and_what_weights_leave(artefacts):
    rows = {(row["arm"], row["metric"]): row for row in habc.rows(artefacts)}
    assert {row["task"] for row in rows.values()} == {"tabletop/push"}
    assert rows["critics", "auc/viability"]["value"] == pytest.approx(0.75) and rows["critics", "auc/viability"]["n"] == 2
    assert rows["critics", "ece/viability"]["low"] == rows["critics", "ece/viability"]["high"] == 0.1
    assert rows["habc", "effective_share/weights"]["value"] == pytest.approx(0.55) and ("critics", "correlation/efficiency") not in rows


def test_the_page_shows_reliability_and_recoveries(artefacts):
    points = [Recovering("tabletop/push", arm, x, 0.5 * x + 0.1) for arm, x in (("demos", 0.2), ("rac", 0.6), ("rac", 0.8))]
    results = synthetic.results()
    results["rows"] += habc.rows(artefacts)
    text = page.build(Study(results, viability=habc.reliabilities(artefacts), recovering=points))
    assert "Critics and weights" in text and "push-0/critics" in text and "auc/viability" in text
    assert "Recoveries" in text and "Success over recoveries on tabletop/push" in text


def test_the_fit_is_a_line_through_policies():
    points = [Recovering("t/a", "x", x, 0.5 * x + 0.1) for x in (0.1, 0.4, 0.9)]
    np.testing.assert_allclose(habc.fit(points), (0.5, 0.1, 1.0), atol=1e-9)
    assert habc.fit(points[:2]) is None and habc.fit([Recovering("t/a", "x", 0.3, y) for y in (0.1, 0.2, 0.3)]) is None


def test_lines_with_recoveries_become_points_and_a_note():
    lines = [
        {"task": "t/a", "arm": arm, "train_seed": seed, "success": int(k < 2 + seed), "measures": {"recoveries": float(k < 1 + seed)}}
        for arm in ("demos", "rac")
        for seed in (0, 1)
        for k in range(4)
    ]
    points = habc.recovering(lines)
    assert [(p.recoveries, p.success) for p in points] == [(0.25, 0.5), (0.5, 0.75)] * 2
    (note,) = habc.notes(lines)
    assert "success = 1.000 x recoveries" in note and "over 4 policies" in note
    assert habc.notes([{key: value for key, value in line.items() if key != "measures"} for line in lines]) == []


def test_critics_of_a_real_robots_stores_belong_to_the_task_that_its_policies_were_evaluated_on():
    sentence = artefact("rollouts", "store", {}, "s", task="put the red cube into the blue tray")
    evaluated = artefact("deploy", "evaluation", {}, "e", task="real_robot/sim")
    critics = artefact("critics", "critics", {"auc": 0.9}, "c", {"store0": "s"})
    assert [row["task"] for row in habc.rows([sentence, evaluated, critics])] == ["real_robot/sim"]
