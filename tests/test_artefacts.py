import json

import pytest

from robowm.artefacts import ARTEFACT, claim, provenance, read_artefact, write_artefact
from robowm.errors import UserError

REQUEST = {"kind": "evaluation", "inputs": {"policy": "abc"}, "config": {"episodes": 5, "seeds": (1, 2)}}


def test_a_folder_can_be_resumed_and_then_returns_at_once(tmp_path):
    assert claim(tmp_path, **REQUEST) is None
    assert claim(tmp_path, **REQUEST) is None
    write_artefact(tmp_path, kind="evaluation", fingerprint="f", inputs={}, config={})
    assert claim(tmp_path, **REQUEST)["fingerprint"] == "f"


def test_a_folder_begun_for_another_request_is_refused(tmp_path):
    claim(tmp_path, **REQUEST)
    (tmp_path / "episodes.jsonl").write_text("")
    with pytest.raises(UserError, match=r"config.episodes = 5, now asked with 6"):
        claim(tmp_path, **{**REQUEST, "config": {"episodes": 6, "seeds": (1, 2)}})
    with pytest.raises(UserError, match=r"inputs.policy = 'abc', now asked with 'xyz'"):
        claim(tmp_path, **{**REQUEST, "inputs": {"policy": "xyz"}})


def test_unfinished_missing_wrong_and_broken_folders_are_told_apart(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_artefact(tmp_path / "nothing", "policy")
    with pytest.raises(UserError, match="has not finished"):
        read_artefact(tmp_path, "policy")
    (tmp_path / ARTEFACT).write_text(json.dumps({"kind": "world_model"}))
    with pytest.raises(UserError, match="is a 'world_model', expected a 'policy'"):
        read_artefact(tmp_path, "policy")
    (tmp_path / ARTEFACT).write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        read_artefact(tmp_path, "policy")


def test_the_renderer_in_use_is_recorded(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setenv("PYOPENGL_PLATFORM", "osmesa")
    assert provenance()["renderer"] == "osmesa"
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert provenance()["renderer"] == "egl"


def test_a_folder_in_which_nothing_was_made_takes_another_request(tmp_path):
    claim(tmp_path / "a", kind="store", inputs={}, config={"stores": [{"share": 1}]})
    (tmp_path / "a" / "command.json").write_text("{}")
    claim(tmp_path / "a", kind="store", inputs={}, config={"stores": [{"share": 2}]})
    (tmp_path / "a" / "log.jsonl").write_text("")
    with pytest.raises(UserError, match=r"config.stores\[0\].share = 2, now asked with 3"):
        claim(tmp_path / "a", kind="store", inputs={}, config={"stores": [{"share": 3}]})
