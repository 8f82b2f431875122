import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from robowm.report import html, models
from robowm.report.page import build
from robowm.report.study import Study
from tests.report.synthetic import pair, results, row, study

VOID = {"meta", "path", "use", "image", "rect", "br", "stop"}


class Outline(HTMLParser):
    """Keeps open tags, headings and every address that the page would load."""

    def __init__(self):
        super().__init__()
        self.open, self.headings, self.loads, self.ids = [], [], [], []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.loads += [named[key] for key in ("src", "xlink:href", "href") if key in named and tag != "a"]
        self.ids += [named["id"]] if "id" in named and tag == "section" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append(data)


def outline(page):
    found = Outline()
    found.feed(page)
    assert found.open == []
    return found


def cells(table):
    """The text of every cell but the first of each row."""
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td[^>]*>(.*?)</td>", table)]


@pytest.fixture(scope="module")
def whole():
    return build(study())


def test_the_page_loads_nothing_from_elsewhere(whole):
    found = outline(whole)
    assert found.loads
    assert all(address.startswith(("data:", "#")) for address in found.loads)
    assert "<script" not in whole and "@import" not in whole and not re.search(r"url\(\s*['\"]?https?:", whole)


def test_every_part_is_there(whole):
    headings = outline(whole).headings
    for name in (
        "Arms",
        "World model",
        "Success classifier",
        "Guidance",
        "Films",
        "Time",
        "Notes",
        "Provenance",
        "pick_place, open-loop actions",
    ):
        assert name in headings
    assert whole.count("<video") == 5  # two predictions, two failures, one demonstration
    assert "+real+imagined succeeds 22.0 points more often than base_longer" in whole


def test_results_alone_make_a_page():
    headings = outline(build(Study(results()))).headings
    assert "Arms" in headings and "World model" in headings and "Films" not in headings


def test_what_does_not_fit_is_named_and_the_page_stays_small(whole):
    small = build(study(), size=100_000)
    assert len(small) < 420_000 < len(whole) + 420_000
    assert small.count("<video") < 5
    assert "Left out to keep the page small" in small


def test_a_table_of_models_runs_down_its_longer_side_and_a_win_is_the_better_one():
    rows = [{**row("t/x", arm, "lpips/wrist@mean", 0.2), "n": 9} for arm in ("base", "rl", "rl:zero_actions")]
    lower = {**pair("t/x", "rl", "base", -0.1), "metric": "lpips/wrist@mean", "wins": 0.25, "losses": 0.75, "p": 0.005}
    found = {"rows": rows, "pairs": [lower]}
    table = models.fidelity_table(found, "t/x")
    assert table.count("<tr>") == 4 and "lpips, wrist" in table.partition("</thead>")[0] and "n = 9" in table
    assert cells(models.comparisons(found, "t/x"))[2:] == ["75.0 %", "25.0 %", "0.005", "500", "better"]
    uneven = models.fidelity_table({"rows": [*rows, {**row("t/x", "rl@t0.4", "lpips/wrist@mean", 0.2), "n": 1000}], "pairs": []}, "t/x")
    counts = [cells(line)[-1] for line in uneven.split("<tr>")[2:]]
    assert "n =" not in uneven and counts == ["9", "9", "1,000", "9"], "an n beside each arm where they differ"
    one = models.fidelity_table({"rows": rows[:1], "pairs": []}, "t/x")
    assert "base" in one.partition("</thead>")[0], "one arm, one metric: metrics run down"


def test_arms_are_spelt_as_in_the_results(whole):
    for name in ("copy_last", "shuffled_actions", "world_model"):
        assert name in whole
    for name in ("copy last", "shuffled actions", "no motion asked", "world model minus", ">world model<"):
        assert name not in whole


def test_text_from_a_run_cannot_break_the_page():
    found = results()
    found["notes"] = ['<script>alert("x")</script>']
    page = build(Study(found))
    assert "<script" not in page and "&lt;script&gt;" in page


def test_figures_follow_the_page_in_light_and_dark(whole):
    assert "prefers-color-scheme: dark" in whole
    assert "currentColor" in whole and "#1c2126" not in whole.partition("</style>")[2]


def test_nothing_here_imports_torch():
    code = (
        "import sys, pkgutil, importlib, robowm.report as r\n"
        "[importlib.import_module(m.name) for m in pkgutil.iter_modules(r.__path__, 'robowm.report.')]\n"
        "import robowm.data.store\n"
        "print(sorted(m for m in ('torch', 'lerobot', 'mujoco', 'hydra') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_numbers_p_values_and_intervals_never_break_inside_a_cell():
    body = html.table(["of", "value", "95 %", "p"], [["psnr", "+0.40 [+0.30, +0.50]", "[+0.30, +0.50]", "1.2e-07"]])
    assert "<span>+0.40</span> <span>[+0.30, +0.50]</span>" in body, "an interval may go below its number"
    assert '<td class="n"><span>[+0.30, +0.50]</span></td><td class="n"><span>1.2e-07</span></td>' in body
    assert "td.n span { white-space: nowrap; }" in html.CSS
