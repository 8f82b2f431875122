"""What find-phases and guide wrote reaches the page."""

import numpy as np

from robowm.artefacts import write_artefact, write_json
from robowm.data.fake import fake_store
from robowm.data.sidecar import write_sidecar
from robowm.report.folders import find_artefacts
from robowm.report.guidance import guided_episodes, guided_figure, timeline_figure, timelines


def test_a_demonstration_is_drawn_with_a_line_for_each_phase(tmp_path):
    kept = [{"phase": [0, 0, 1], "distance": [[0.1, 0.2, 0.9], [0.8, 0.7, 0.1]]}]
    write_json(tmp_path / "phases" / "timeline.json", kept)
    write_artefact(tmp_path / "phases", kind="phases", fingerprint="f", inputs={}, config={})
    (found,) = timelines(find_artefacts(tmp_path))
    assert found.title == "phases, demonstration 0"
    axes = timeline_figure(found).axes[0]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_array_equal(lines["phase 0"], [0.1, 0.2, 0.9])
    np.testing.assert_array_equal(lines["phase 1"], [0.8, 0.7, 0.1])


def test_a_guided_episode_shows_its_own_steps_and_how_much_of_the_sampling_was_guided(tmp_path):
    store = fake_store(tmp_path / "guided", [4, 6])
    gate = np.zeros((10, 2), bool)
    gate[4:7, 0] = True
    gate[9] = True
    told = {"gate": gate, "phase": np.arange(10, dtype=np.int32) // 5, "distance": np.linspace(0, 9, 10, dtype=np.float32)}
    store.seal(inputs={}, config={"task": "fake/counter"})
    write_sidecar(store, "told", told)
    first, second = guided_episodes(find_artefacts(tmp_path))
    assert len(first.gate) == 4 and not first.gate.any()
    np.testing.assert_array_equal(second.gate, [0.5, 0.5, 0.5, 0, 0, 1])
    np.testing.assert_array_equal(second.distance, [4, 5, 6, 7, 8, 9])
    bars = guided_figure(second).axes[0].patches
    assert [round(bar.get_height(), 6) for bar in bars] == [4.5, 4.5, 4.5, 0, 0, 9]


def test_a_store_that_nothing_was_told_of_has_no_picture(tmp_path):
    fake_store(tmp_path / "demos", [4]).seal(inputs={}, config={"task": "fake/counter"})
    assert guided_episodes(find_artefacts(tmp_path)) == []
