import json

import pytest

from robowm.train.log import JsonlLog, SafeTracker, Wandb, read_log
from tests.train import toy


def test_resuming_drops_later_lines_and_a_cut_off_one(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"step": s}) + "\n" for s in (5, 10, 15)) + '{"step": 2')
    log = JsonlLog(path, resume_at=10)
    log.write({"step": 15, "loss": 1.0})
    log.close()
    assert read_log(path) == [{"step": 5}, {"step": 10}, {"step": 15, "loss": 1.0}]


class Broken:
    def __init__(self, method):
        self.calls = []
        self._method = method

    def __getattr__(self, name):
        def call(*_):
            self.calls.append(name)
            if name == self._method:
                raise ConnectionError("server is away")

        return call


@pytest.mark.parametrize("method", ["start", "log", "finish"])
def test_a_failing_tracker_becomes_one_warning_and_training_goes_on(tmp_path, method):
    tracker = Broken(method)
    with pytest.warns(UserWarning, match="tracking stopped .ConnectionError: server is away") as caught:
        toy.train(tmp_path, steps=20, tracker=tracker)
    assert len(caught) == 1 and tracker.calls.count(method) == 1
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == [5, 10, 15, 20]


def test_no_tracker_is_quiet(recwarn, capsys):
    SafeTracker(None).log({"loss": 1.0}, 1)
    assert not recwarn.list and capsys.readouterr() == ("", "")


def test_wandb_offline_writes_a_record_and_keeps_its_id(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = Wandb(mode="offline")
    toy.train(tmp_path, steps=10, tracker=tracker)
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    identity = (tmp_path / "wandb_id.txt").read_text()
    assert any(identity in path.name for path in (tmp_path / "wandb").iterdir())
