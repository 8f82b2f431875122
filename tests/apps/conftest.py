import shutil
from pathlib import Path

import pytest

from robowm.apps import harness

PART = """
_target_: tests.apps.fake.Part
width: {width}  # how wide
path: ???  # where it comes from
"""
FAKE = """
defaults:
  - app
  - part: narrow
  - _self_
model: {_target_: tests.apps.fake.Part, width: 2}
steps: ${size.steps}  # how many
seed: 0
items: []
trusted: [tests]
"""


@pytest.fixture
def fake_app(tmp_path, monkeypatch):
    """The app ``fake`` with its own configs folder, run in a fresh launch directory."""
    configs = tmp_path / "configs"
    real = harness.config_folder()
    (configs / "part").mkdir(parents=True)
    (configs / "size").mkdir()
    shutil.copy(real / "app.yaml", configs / "app.yaml")
    shutil.copytree(real / "launcher", configs / "launcher")
    for name, width in (("narrow", 1), ("wide", 100)):
        (configs / "part" / f"{name}.yaml").write_text(PART.format(width=width))
    for name, steps in (("debug", 2), ("tiny", 20)):
        (configs / "size" / f"{name}.yaml").write_text(f"name: {name}\nsteps: {steps}\n")
    (configs / "fake.yaml").write_text(FAKE)
    monkeypatch.setattr(harness, "config_folder", lambda: Path(configs))
    launch_dir = tmp_path / "here"
    launch_dir.mkdir()
    monkeypatch.chdir(launch_dir)
    return harness.App("fake", "tests.apps.fake:run", nodes=("model",))
