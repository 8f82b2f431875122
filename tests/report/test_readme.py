from pathlib import Path

import pytest
import yaml

from robowm.errors import UserError
from robowm.report.readme import BEGIN, END, PAGES, committed, main, rewrite, tables

ROOT = Path(__file__).resolve().parents[2]


def row(arm, metric, value, task="tabletop/push"):
    return {"task": task, "arm": arm, "metric": metric, "value": value, "low": value - 0.1, "high": value + 0.1, "n": 200}


STUDY = {
    "command": "robowm flywheel experiment=x",
    "commit": "abc",
    "date": "2026-01-01",
    "machine": {"cpus": 2},
    "rows": [
        row("base", "success", 0.3),
        row("+real", "success", 0.5),
        *(row("world_model", f"{m}/{c}@mean", v) for m in ("psnr", "ssim", "lpips") for c, v in (("external", 1.0), ("wrist", 2.0))),
    ],
    "pairs": [
        {"task": "tabletop/push", "a": "+real", "b": "base", "metric": "success"}
        | {"diff": 0.2, "low": 0.1, "high": 0.3, "n": 200, "wins": 0.25, "losses": 0.05}
    ],
}


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_say_what_the_results_say(page):
    text = (ROOT / page).read_text()
    assert rewrite(text, committed(ROOT / "results", page)) == text, "run: python -m robowm.report.readme"


def test_every_results_file_is_shown_and_the_readme_shows_the_demo():
    assert len(committed(ROOT / "results", "docs/results.md")) == len(list((ROOT / "results").glob("*.json")))
    assert [study["study"] for study in committed(ROOT / "results", "README.md")] == ["demo"]


def test_tables_show_arms_differences_and_fidelity_over_cameras():
    shown = tables([STUDY])
    assert "| tabletop/push | base | 0.300 | 0.200 to 0.400 | 200 |" in shown
    assert "| tabletop/push | +real - base | +0.200 | +0.100 to +0.300 | 25.0% / 5.0% |" in shown
    assert ": world_model | PSNR (dB) | SSIM | LPIPS |" in shown and "| tabletop/push | 1.50 | 1.500 | 1.5000 |" in shown
    beside = tables([{**STUDY, "rows": [*STUDY["rows"][2:4], row("copy_last", "psnr/wrist@mean", 1.0, task="discs")]}])
    assert ": world_model / copy_last | PSNR (dB) |" in beside and "| discs | not run / 1.00 |" in beside


def test_steps_to_success_stand_beside_success_and_fewer_are_won():
    told = {"task": "tabletop/push", "a": "habc", "b": "plain", "n": 200, "wins": 0.1, "losses": 0.6}
    steps = [{**told, "metric": f"steps_to_success{of}", "diff": -4.25, "low": -6.0, "high": -2.5} for of in ("", "@solved")]
    shown = tables([{**STUDY, "pairs": [*STUDY["pairs"], *steps]}])
    assert shown.count("| tabletop/push | habc - plain | -4.2 | -6.0 to -2.5 | 60.0% / 10.0% |") == 2
    assert "a failure counts as the time limit" in shown and "of the starts that both solved" in shown
    assert "difference in steps" not in tables([STUDY])


def test_what_collection_measured_is_shown():
    shown = tables([{**STUDY, "rows": [row("estop", "estop_ms@p99", 0.5, task="real_robot/sim")]}])
    assert "| estop | estop_ms@p99 | 0.5 | 0.4 to 0.6 | 200 |" in shown


def test_world_models_stand_beside_each_other_but_not_beside_controls_and_the_better_one_wins():
    told = {"task": "discs/push", "diff": 0.5, "low": 0.25, "high": 0.75, "n": 768, "wins": 0.9, "losses": 0.1}
    arms = [("rl", "base"), ("rl@t0.4", "base@t0.4"), ("best_of_k", "base"), ("rl", "copy_last"), ("rl", "rl:zero_actions")]
    pairs = [{**told, "a": a, "b": b, "metric": f"{m}/external@mean"} for a, b in arms for m in ("psnr", "lpips")]
    shown = tables([{**STUDY, "rows": [], "pairs": pairs}]).splitlines()
    assert "| task | world model, same episodes | psnr/external | lpips/external |" in shown
    cells = " | ".join(f"+0.500 (+0.250 to +0.750), won {share}" for share in ("90%", "10%"))  # a higher LPIPS loses
    assert [line for line in shown if "+0.500" in line] == [f"| discs/push | {a} - {b} | {cells} |" for a, b in arms[:3]]
    masked = [{**told, "a": "rl", "b": "base", "metric": "psnr_object/external@mean"}]
    shown = tables([{**STUDY, "rows": [], "pairs": [*pairs, *masked]}]).splitlines()
    below = shown.index("| task | world model, same episodes | psnr_object/external |")
    assert shown[below + 2] == "| discs/push | rl - base | +0.500 (+0.250 to +0.750), won 90% |" and shown[below + 3 :] == [], (
        "its own table"
    )


def test_only_what_stands_between_the_markers_changes():
    assert rewrite(f"a {BEGIN}old{END} b", []).startswith(f"a {BEGIN}\n")
    with pytest.raises(UserError, match="markers"):
        rewrite("no markers", [])


@pytest.mark.parametrize("words, code", [(["--help"], 0), (["results"], 2)])
def test_help_and_words_that_mean_nothing_change_no_page(words, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for page in PAGES:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text(f"before\n{BEGIN}\nold\n{END}\n")
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == code and "usage: python -m robowm.report.readme" in "".join(capsys.readouterr())
    assert all("old" in (tmp_path / page).read_text() for page in PAGES)
    main([])
    assert not any("old" in (tmp_path / page).read_text() for page in PAGES)


def test_the_readme_names_the_quickest_run_of_the_whole_loop_as_its_config_does():
    command = yaml.safe_load((ROOT / "configs/experiment/debug.yaml").read_text())["command_line"]
    assert any(line.startswith(command) and "few minutes" in line for line in (ROOT / "README.md").read_text().splitlines())
