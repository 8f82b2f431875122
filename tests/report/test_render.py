import io
import json
import os
import shutil
import struct

import av
import numpy as np
import pytest

from robowm.data.store import EpisodeStore, StoreSpec
from robowm.errors import UserError
from robowm.evaluation.policies import run as evaluate
from robowm.report.films import encode, strip_film
from robowm.report.folders import recorded_report, stages_of
from robowm.report.render import run
from robowm.report.schema import read_results
from robowm.rollout import run_episodes
from tests.fakes import COUNTER_SIZE, CounterEnv, NoisePolicy
from tests.report.synthetic import results, strip

SPEC = StoreSpec({"external": (COUNTER_SIZE, COUNTER_SIZE)}, ["t"], ["a", "b"], None, 10.0, "absolute")


def frames_of(mp4):
    with av.open(io.BytesIO(mp4)) as container:
        return container.streams.video[0].codec_context.name, np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)])


@pytest.fixture
def store(tmp_path):
    found = EpisodeStore.create(tmp_path / "demonstrations", SPEC)
    for rollout in run_episodes(CounterEnv(2), NoisePolicy(), [3, 4], max_steps=9, kind="demo"):
        found.append(rollout.episode)
    found.seal(inputs={}, config={"task": "fake/counter"})
    return found


def test_any_episode_of_a_store_becomes_a_film(store, tmp_path, capsys):
    made = run(output_dir=tmp_path / "out", store=store.path, episode=1)
    codec, frames = frames_of((tmp_path / "out" / "demonstrations_1.mp4").read_bytes())
    assert made == {"film": str(tmp_path / "out" / "demonstrations_1.mp4")}
    assert codec == "h264" and len(frames) == 10
    assert frames[0].mean() < 4 and abs(frames[9].mean() - 9) < 4  # the counter's frames encode the step
    assert "seed 4, 9 steps, success (simulator)" in capsys.readouterr().out


@pytest.mark.parametrize("episode", [2, -1])
def test_an_episode_that_is_not_there_is_named(store, tmp_path, episode):
    with pytest.raises(UserError, match=f"holds episodes 0..1, found episode={episode}"):
        run(output_dir=tmp_path / "out", store=store.path, episode=episode)


@pytest.mark.parametrize("given", [{}, {"results": "a.json", "store": "b"}])
def test_exactly_one_thing_is_reported_on(given, tmp_path):
    with pytest.raises(UserError, match="exactly one of"):
        run(output_dir=tmp_path, **given)


def test_a_results_file_is_drawn_as_it_stands(tmp_path, capsys):
    (tmp_path / "demo.json").write_text(json.dumps(results()))
    made = run(output_dir=tmp_path / "out", results=tmp_path / "demo.json")
    assert read_results(made["results"]) == results()
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert "+real+imagined - base_longer" in capsys.readouterr().out


def test_a_run_folder_becomes_results_page_and_picture(store, tmp_path):
    for arm, goal in (("base", 99), ("+real", 5)):
        evaluate(
            env=CounterEnv(4, goal=lambda seed, goal=goal: goal),
            policy=NoisePolicy(),
            arm=arm,
            output_dir=tmp_path / f"evaluate-{arm}",
            episodes=6,
            max_steps=9,
        )
    made = run(output_dir=tmp_path / "out", flywheel=tmp_path, study="fake", command="robowm x", pairs=[{"a": "+real", "b": "base"}])
    found = read_results(made["results"])
    assert [pair["diff"] for pair in found["pairs"]] == [1.0]
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<video") == 4 + 1 + 2  # failures of base, a success of +real, two demonstrations
    assert "Dataset demonstrations (2 episodes)" in page
    assert store.fingerprint() in page


def test_stages_are_timed_by_the_ledger_and_cut_off_ones_left_out(tmp_path):
    folder = tmp_path / "ledger" / "pick_place-0"
    folder.mkdir(parents=True)
    for name, output, seconds, end in (("collect", "a1", 90.0, 1090), ("train-policy", "b2", 300.0, 1390), ("rollout", None, 4.0, 1400)):
        (folder / f"{name}.json").write_text(json.dumps({"request": "r", "inputs": {}, "output": output, "seconds": seconds}))
        os.utime(folder / f"{name}.json", (end, end))
    (tmp_path / "ledger" / "all").mkdir()  # the report itself is no part of what it reports
    shutil.copy(folder / "collect.json", tmp_path / "ledger" / "all" / "report.json")
    assert [(stage.name, stage.start, stage.seconds) for stage in stages_of(tmp_path)] == [("collect", 0, 90), ("train-policy", 90, 300)]
    os.utime(folder / "train-policy.json", (90_000, 90_000))  # finished the next day: there is no timeline then, only lengths
    assert [stage.start for stage in stages_of(tmp_path)] == [None, None]


def test_a_later_report_compares_what_the_run_had_written_down(tmp_path):
    folder = tmp_path / "all" / "report"
    folder.mkdir(parents=True)
    config = {"pairs": [{"a": "+real", "b": "base"}], "study": "demo"}
    (folder / "command.json").write_text(json.dumps({"verb": "report", "overrides": [], "config": config}))
    assert recorded_report(tmp_path) == config


def test_a_prediction_film_shows_truth_above_and_marks_chunks():
    film = strip_film(strip(length=8, chunk=4))
    assert len(film) == 9 and film.shape[1] == 2 * 128 + 6
    bar = film[:, 128 + 2, 0]
    assert (bar[1:5] == bar[1]).all() and (bar[5:9] == bar[5]).all() and (bar[1] != bar[5]).any()


def test_a_film_without_frames_is_refused():
    with pytest.raises(UserError, match="T >= 1"):
        encode(np.zeros((0, 8, 8, 3), np.uint8), 10)
    assert struct.unpack(">4s", encode(np.zeros((3, 8, 8, 3), np.uint8), 10)[4:8])[0] == b"ftyp"
