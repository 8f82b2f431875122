"""Which stores have films to show."""

from dataclasses import replace

from robowm.data.fake import fake_episode, fake_spec, fake_store
from robowm.data.store import EpisodeStore
from robowm.report.folders import find_artefacts
from robowm.report.media import store_videos


def test_stores_without_pictures_or_episodes_are_passed_over(tmp_path):
    fake_store(tmp_path / "demos", [4, 5]).seal(inputs={}, config={"task": "fake/a"})
    states = EpisodeStore.create(tmp_path / "states", replace(fake_spec(), cameras={}))
    states.append(fake_episode(states.spec, 4, 0))
    states.seal(inputs={}, config={"task": "fake/a"})
    fake_store(tmp_path / "kept", [4]).seal(inputs={}, config={"task": "fake/a"})
    (tmp_path / "kept" / "zarr.json").unlink()
    assert {video.group for video in store_videos(find_artefacts(tmp_path))} == {"Dataset demos (2 episodes)"}
