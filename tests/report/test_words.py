import pytest

from robowm.report.words import format_table, headline, interval, number, sentence, verdict
from tests.report.synthetic import pair, results

TASK = "tabletop/pick_place"


def test_an_interval_that_holds_zero_is_never_an_improvement():
    assert verdict(pair(TASK, "+real", "base", 0.04, half=0.05)) == "no sure difference"
    assert verdict(pair(TASK, "+real", "base", 0.04, half=0.04)) == "no sure difference"
    assert verdict(pair(TASK, "+real", "base", 0.04, half=0.03)) == "better"
    assert verdict(pair(TASK, "+real", "base", -0.04, half=0.03)) == "worse"


@pytest.mark.parametrize("told", [{"n": 9}, {"n": 3, "p": 0.25}, {"p": 0.051}])
def test_few_starts_or_a_large_p_are_never_an_improvement(told):
    one = {**pair(TASK, "+real", "base", 0.2, half=0.05), **told}
    assert verdict(one) == verdict({**one, "diff": -0.2, "low": -0.25, "high": -0.15}) == "no sure difference"
    assert verdict({**one, "n": 10, "p": 0.05}) == verdict({**one, "n": 10, "p": None}) == "better"
    lines = headline({**results(), "pairs": [one]})
    assert lines[0].startswith("Nothing improved surely")
    assert f"No sure difference on pick_place: +real against base (+20.0 [+15.0, +25.0], n = {one['n']})." in lines
    model = {**one, "a": "rl", "metric": "psnr/wrist@mean"}
    (line,) = [line for line in headline({**results(), "pairs": [model]}) if line.startswith("rl against base")]
    assert f", n = {one['n']} (no sure difference" in line and "better" not in line
    gains = headline({**results(), "pairs": [{**model, "a": "world_model", "b": "copy_last"}]})
    assert any(f"dB wrist (no sure difference, n = {one['n']})" in line for line in gains)


def test_fewer_is_better_where_it_should_be():
    assert verdict({**pair(TASK, "a", "b", -0.04, half=0.01), "metric": "lpips/wrist@mean"}) == "better"


def test_the_headline_says_when_nothing_improved():
    found = results()
    found["pairs"] = [pair(TASK, "+real", "base_longer", 0.02), pair(TASK, "+imagined", "base_longer", -0.2)]
    lines = headline(found)
    assert lines[0].startswith("Nothing improved surely")
    assert "20.0 points less often" in lines[1]
    assert lines[2] == "No sure difference on pick_place: +real against base_longer (+2.0 [\N{MINUS SIGN}3.0, +7.0], n = 500)."


def test_what_improved_comes_first():
    found = results()
    found["pairs"] = [pair(TASK, "base_longer", "base", 0.02), pair(TASK, "+real", "base", -0.2), pair(TASK, "+imagined", "base", 0.2)]
    assert [line.split()[2] for line in headline(found)[:2]] == ["+imagined", "+real"]


def test_an_arm_may_improve_whatever_its_name_but_a_baseline_does_not():
    found = results()
    found["pairs"] = [pair(TASK, "base_longer", "base", 0.2), pair(TASK, "guided_ft1", "unguided_matched", 0.1)]
    assert [line.split()[2] for line in headline(found)[:2]] == ["guided_ft1", "base_longer"]
    found["pairs"] = [pair(TASK, "unguided_matched", "base", 0.2)]
    assert headline(found)[0].startswith("Nothing improved surely")


def test_the_headline_says_how_much_of_what_was_imagined_did_not_hold():
    assert "Imagined successes that fail when executed: 18.0 % [13.0, 23.0] on pick_place (n = 200)." in headline(results())


def test_the_headline_says_when_nothing_was_to_be_compared():
    assert headline({**results(), "pairs": []})[0].startswith("No comparison was written down")


def test_a_sentence_holds_difference_interval_and_n():
    line = sentence(pair(TASK, "+real", "base", 0.22, half=0.05, n=1500))
    assert line == "On pick_place, +real succeeds 22.0 points more often than base [+17.0, +27.0], n = 1,500."


def test_many_comparisons_of_world_models_become_one_line_a_task():
    found = results()
    pairs = [("rl", "base", 0.4), ("plain", "base", 0.02), ("random", "base", -0.5), *(("rl", f"other{i}", 0.1) for i in range(9))]
    found["pairs"] = [{**pair(TASK, a, b, diff, half=0.05), "metric": "psnr/wrist@mean"} for a, b, diff in pairs]
    lines = headline(found)
    assert (
        "Against base on pick_place, expert actions, psnr wrist: better: rl +0.40 [+0.35, +0.45]; "
        "worse: random \N{MINUS SIGN}0.50 [\N{MINUS SIGN}0.55, \N{MINUS SIGN}0.45]; "
        "no sure difference: plain +0.02 [\N{MINUS SIGN}0.03, +0.07], n = 500."
    ) in lines
    assert "All 12 comparisons of world models, in every metric, stand below." in lines and not any("other3" in line for line in lines)


def test_a_few_models_in_many_metrics_also_get_one_line_a_task():
    metrics = [f"{name}/{camera}@mean" for name in ("psnr", "ssim", "lpips") for camera in "abcdefghijklmnopq"]
    found = {**results(), "pairs": [{**pair("t/pick", "rl", "base", 1.0, half=0.05), "metric": metric} for metric in metrics]}
    assert [line for line in headline(found) if "lpips" in line] == []
    assert "Against base on pick, expert actions, psnr a: better: rl +1.00 [+0.95, +1.05]." in headline(found)


def test_world_models_are_compared_in_words_and_controls_are_not():
    found = results()
    one = {**pair(TASK, "rl", "base", 0.4, half=0.1), "metric": "psnr/wrist@mean", "p": 1.2e-7}
    lower = {**pair(TASK, "rl", "base", 0.03, half=0.01), "metric": "lpips/wrist@mean", "p": 0.04}
    found["pairs"] = [one, lower, {**one, "b": "rl:shuffled_actions"}, {**one, "metric": "psnr/wrist@contact"}]
    said = "psnr wrist +0.40 [+0.30, +0.50] (better, p = 1.2e-07); lpips wrist +0.030 [+0.020, +0.040] (worse, p = 0.040)"
    lines = headline(found)
    assert f"rl against base on pick_place, expert actions: {said}." in lines
    assert not any("shuffled" in line or "No comparison" in line for line in lines)


def test_units_follow_the_metric():
    assert number(0.3149, "success") == "31.5"
    assert number(-0.02, "success", signed=True) == "\N{MINUS SIGN}2.0"
    assert number(26.604, "psnr/external@mean") == "26.60"
    assert number(0.0421, "lpips/wrist@20") == "0.042"
    assert [number(value, "success", signed=True) for value in (1e-9, 0.0, -1e-9)] == ["0.0"] * 3
    assert interval({"metric": "recall/success_classifier", "low": 0.5, "high": 0.75}) == "[50.0, 75.0]"


def test_the_terminal_table_is_aligned_and_complete():
    lines = format_table(results()).splitlines()
    arms = [line for line in lines if "[" in line and "500" in line]
    assert len({len(line) for line in arms[:7]}) == 1
    names = " ".join(line.split()[0] for line in arms[:7])
    assert names == "never_moves base base_longer +real +imagined +real+imagined expert"
    assert lines[-1].startswith("note: One training seed")
