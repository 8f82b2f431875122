import json
import time

from robowm.progress import PROGRESS, SAY_EVERY, WRITE_EVERY, Progress, read_progress


def test_the_file_ends_at_the_last_count(tmp_path):
    with Progress(tmp_path, 5, "stepping") as progress:
        for _ in range(5):
            progress.advance(loss=0.5)
    assert json.loads((tmp_path / PROGRESS).read_text()) == {"done": 5, "total": 5, "label": "stepping", "eta_s": 0.0}


def test_the_file_is_written_at_most_once_a_second(tmp_path):
    progress = Progress(tmp_path, 10, "x")
    progress.advance(3)
    assert read_progress(tmp_path)["done"] == 0
    progress._written -= WRITE_EVERY
    progress.advance(3)
    assert read_progress(tmp_path)["done"] == 6


def test_time_left_counts_this_process_alone(tmp_path):
    progress = Progress(tmp_path, 100, "x", done=90)
    assert progress.eta_s is None
    progress._began = time.monotonic() - 5.0
    progress.advance(5)
    assert 4.9 < progress.eta_s < 5.5


def test_a_file_that_cannot_be_written_does_not_stop_the_loop(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with Progress(blocked / "below", 2, "x") as progress:
        progress.advance(2)
    assert read_progress(blocked / "below") is None


def test_a_folder_where_nothing_reports_reads_as_none(tmp_path):
    assert read_progress(tmp_path) is None
    (tmp_path / PROGRESS).write_text("{")
    assert read_progress(tmp_path) is None


def test_a_log_gets_a_line_a_minute(tmp_path, capsys):
    progress = Progress(tmp_path, 100, "train", done=20)
    progress.advance(10, loss=0.5)
    assert capsys.readouterr().err == ""
    progress._said -= SAY_EVERY
    progress._began -= 5.0
    progress.advance(10, loss=0.25)
    progress.advance(10, loss=0.1)
    assert capsys.readouterr().err == "train 40/100, 15 s left loss 0.25\n"
