"""The episode store: what goes in comes out, and nothing half-written or wrong is ever read."""

import dataclasses
import json
import subprocess
import sys
import time

import numpy as np
import pytest
import zarr

from robowm.artefacts import read_artefact
from robowm.data.fake import CORNERS, fake_episode, fake_spec, fake_store
from robowm.data.merge import merge_stores, select_episodes
from robowm.data.spec import IMAGE, episode_arrays
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.types import Episode, Source


def assert_equal(a: Episode, b: Episode) -> None:
    left, right = episode_arrays(a), episode_arrays(b)
    assert left.keys() == right.keys()
    for key in left:
        assert left[key].dtype == right[key].dtype
        np.testing.assert_array_equal(left[key], right[key], err_msg=key)
    for name in ("task", "fps", "source", "judged_by", "terminated"):
        assert getattr(a, name) == getattr(b, name)
    assert a.success == b.success or (np.isnan(a.success) and np.isnan(b.success))


@pytest.mark.parametrize("length", [0, 1, 31, 32, 70])
def test_an_episode_comes_back_as_it_went_in(tmp_path, length):
    spec = fake_spec({"external": (32, 24), "wrist": (16, 16)})
    episode = fake_episode(spec, length, seed=4)
    store = EpisodeStore.create(tmp_path / "s", spec)
    assert store.append(episode) == 0
    again = EpisodeStore.open(tmp_path / "s")
    assert len(again) == 1 and again.lengths.tolist() == [length] and again.spec == spec
    assert_equal(again.episode(0), episode)


def test_unjudged_success_and_provenance_survive(tmp_path):
    spec = fake_spec(environment_state=False)
    source = Source(kind="imagined", seed=7, policy="p1", world_model="w1", round=2)
    episode = dataclasses.replace(fake_episode(spec, 5), success=float("nan"), judged_by="", source=source, terminated=True)
    store = EpisodeStore.create(tmp_path / "s", spec)
    store.append(episode)
    meta = EpisodeStore.open(tmp_path / "s").meta(0)
    assert np.isnan(meta.success) and meta.judged_by == "" and meta.source == source and meta.terminated and meta.length == 5
    assert store.episode(0).environment_state is None


def test_zarr_itself_reads_the_same_arrays(tmp_path):
    store = fake_store(tmp_path / "s", [40])
    group = zarr.open_group(zarr.storage.ZipStore(store.file(0), mode="r"), mode="r")
    for key, array in episode_arrays(store.episode(0)).items():
        np.testing.assert_array_equal(group[key][:], array, err_msg=key)
        assert group[key].dtype == array.dtype
    assert group[IMAGE + "wrist"].chunks == (32, 32, 32, 3)
    assert dict(zarr.open_group(tmp_path / "s", mode="r").attrs)["robowm"]["schema"] == 1


def test_a_group_that_zarr_wrote_is_read(tmp_path):
    episode = fake_episode(fake_spec(), 40)
    store = fake_store(tmp_path / "s", [40])
    attributes = zarr.open_group(zarr.storage.ZipStore(store.file(0), mode="r"), mode="r").attrs.asdict()
    store.file(0).unlink()
    with zarr.storage.ZipStore(store.file(0), mode="w") as archive:
        group = zarr.create_group(archive, attributes=attributes)
        for key, array in episode_arrays(episode).items():
            chunks = (min(32, len(array)), *array.shape[1:])
            compressors = zarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle")
            group.create_array(key, data=array, chunks=chunks, compressors=compressors, config={"write_empty_chunks": True})
    assert_equal(EpisodeStore.open(tmp_path / "s").episode(0), episode)


def test_rows_reads_any_range_and_no_other_chunk(tmp_path):
    store = fake_store(tmp_path / "s", [100])
    whole = store.episode(0).frames["wrist"]
    for start, stop in [(0, 1), (30, 34), (32, 64), (64, 101), (100, 101), (0, 101)]:
        np.testing.assert_array_equal(store.rows(0, IMAGE + "wrist", start, stop), whole[start:stop])


def test_corner_colours_keep_their_corners_and_channel_order(tmp_path):
    frames = fake_store(tmp_path / "s", [3]).episode(0).frames["external"]
    corners = frames[:, 0, 0], frames[:, 0, -1], frames[:, -1, 0], frames[:, -1, -1]
    for corner, colour in zip(corners, CORNERS, strict=True):
        assert (corner == colour).all()


# ------------------------------------------------------------------ bad input


def broken(change):
    return change(fake_episode(fake_spec(), 6))


def test_nan_that_another_writer_left_is_named_when_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("robowm.data.store.check_episode", lambda spec, episode: None)
    store = EpisodeStore.create(tmp_path / "s", fake_spec())
    store.append(with_nan(fake_episode(fake_spec(), 8)))
    with pytest.raises(UserError, match=r"000000\.zip: observation\.state is nan in row 3, entry \[1\]"):
        store.episode(0)


def with_nan(episode):
    state = episode.state.copy()
    state[3, 1] = np.nan
    return dataclasses.replace(episode, state=state)


def with_infinite_action(episode):
    action = episode.action.copy()
    action[2, 0] = np.inf
    return dataclasses.replace(episode, action=action)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_nan, "observation.state holds nan at row 3"),
        (with_infinite_action, "action holds inf at row 2"),
        (lambda e: dataclasses.replace(e, state=e.state[:-1]), r"observation.state is float32 \(6, 5\), expected float32 \(7, 5\)"),
        (lambda e: dataclasses.replace(e, state=e.state.astype(float)), "observation.state is float64"),
        (lambda e: dataclasses.replace(e, frames={"wrist": e.frames["wrist"]}), "lacks 'observation.images.external'"),
        (lambda e: dataclasses.replace(e, frames={**e.frames, "top": e.frames["wrist"]}), "observation.images.top"),
        (lambda e: dataclasses.replace(e, fps=29.97), "29.97"),
        (lambda e: dataclasses.replace(e, success=0.5), "success is 0.5"),
        (lambda e: dataclasses.replace(e, judged_by=""), "who judged"),
        (lambda e: dataclasses.replace(e, controller=np.full(6, 9, np.int8)), r"controller holds \[9\]"),
        (lambda e: dataclasses.replace(e, controller=np.array([0, 0, 0, 1, 1, 1], np.int8)), "segment must start at 0"),
        (lambda e: dataclasses.replace(e, segment=np.array([0, 0, 2, 2, 2, 2], np.int32)), "segment must start at 0"),
    ],
)
def test_a_wrong_episode_is_refused_in_one_line_and_leaves_no_trace(tmp_path, change, message):
    store = fake_store(tmp_path / "s", [4])
    before = store.fingerprint()
    with pytest.raises(UserError, match=message) as error:
        store.append(broken(change))
    assert "\n" not in str(error.value)
    again = EpisodeStore.open(tmp_path / "s")
    assert again.fingerprint() == before and again.interrupted == []


def test_opening_names_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        EpisodeStore.open(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.hdf5").touch()
    with pytest.raises(UserError, match=r"holds no zarr.json but data.hdf5; robowm import"):
        EpisodeStore.open(tmp_path / "other")
    zarr.create_group(tmp_path / "group")
    with pytest.raises(UserError, match="not an episode store"):
        EpisodeStore.open(tmp_path / "group")
    fake_store(tmp_path / "s", [3])
    with pytest.raises(UserError, match="no camera 'wirst'; did you mean 'wrist'"):
        EpisodeStore.open(tmp_path / "s", cameras=["wirst"])
    with pytest.raises(UserError, match="already holds"):
        EpisodeStore.create(tmp_path / "s", fake_spec())
    with pytest.raises(UserError, match=r"fps = 10.0, not 20.0"):
        EpisodeStore.open_or_create(tmp_path / "s", fake_spec(fps=20.0))


def test_another_schema_is_refused(tmp_path):
    store = fake_store(tmp_path / "s", [3])
    root = json.loads((store.path / "zarr.json").read_text())
    root["attributes"]["robowm"]["schema"] = 99
    (store.path / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(UserError, match="schema 99"):
        EpisodeStore.open(store.path)


def test_zarr_2_metadata_beside_ours_is_refused_not_read_as_empty(tmp_path):
    store = fake_store(tmp_path / "s", [3])
    zarr.open_group(tmp_path / "two", mode="w", zarr_format=2)
    with pytest.raises(UserError, match="zarr 2"):
        EpisodeStore.open(tmp_path / "two")
    with pytest.raises(UserError, match="zarr 2"):
        EpisodeStore.create(tmp_path / "two", fake_spec())
    (store.path / ".zgroup").write_text('{"zarr_format": 2}')
    with pytest.raises(UserError, match="zarr 2"):
        EpisodeStore.open_or_create(store.path, store.spec)


def test_a_damaged_file_is_named(tmp_path):
    store = fake_store(tmp_path / "s", [40, 40])
    data = bytearray(store.file(1).read_bytes())
    data[200] ^= 0xFF
    store.file(1).write_bytes(data)
    with pytest.raises(UserError, match=r"000001.zip: observation.images.external/c/0/0/0/0 is missing or damaged"):
        EpisodeStore.open(store.path).episode(1)
    store.file(1).write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match=r"000001.zip is not a zipped zarr group or is damaged"):
        EpisodeStore.open(store.path)


def test_a_missing_array_is_an_error_not_zeros(tmp_path):
    store = fake_store(tmp_path / "s", [5])
    with pytest.raises(UserError, match=r"no 'observation.images.top'"):
        store.rows(0, "observation.images.top")
    with pytest.raises(UserError, match="no camera 'top'"):
        store.episode(0, cameras=["top"])


# ------------------------------------------------------------------ atomic appends

WRITER = """
import sys, itertools
from robowm.data.fake import fake_episode
from robowm.data.store import EpisodeStore
store = EpisodeStore.open(sys.argv[1])
for i in itertools.count() if len(sys.argv) < 4 else range(int(sys.argv[3])):
    store.append(fake_episode(store.spec, 60, seed=int(sys.argv[2]) + i))
    print(i, flush=True)
"""


def writer(path, seed, *count):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(seed), *map(str, count)], stdout=subprocess.PIPE, text=True)


def test_kill_9_costs_at_most_the_episode_being_written(tmp_path):
    path = tmp_path / "s"
    fake_store(path, [])
    promised = set_aside = 0
    for attempt, delay in enumerate(np.random.default_rng(0).uniform(0.02, 0.2, 4)):
        process = writer(path, 1000 * attempt)
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        promised += 1 + len(process.stdout.readlines())
        process.wait()
        store = EpisodeStore.open(path)
        set_aside += len(store.interrupted)
        assert promised <= len(store) <= promised + attempt + 1
        assert EpisodeStore.open(path).interrupted == []
    for i in range(len(store)):
        assert_equal(store.episode(i), fake_episode(store.spec, 60, seed=store.meta(i).source.seed))
    assert len(list((path / "interrupted").glob("*"))) == set_aside if set_aside else not (path / "interrupted").exists()
    assert store.append(fake_episode(store.spec, 3)) == len(store) - 1


def test_a_half_written_episode_is_set_aside_and_reported(tmp_path, caplog):
    store = fake_store(tmp_path / "s", [5])
    (store.path / ".writing" / "abc.zip").write_bytes(store.file(0).read_bytes()[:500])
    again = EpisodeStore.open(store.path)
    assert again.interrupted == ["abc.zip"] and "1 half-written" in caplog.text and len(again) == 1
    assert (store.path / "interrupted" / "abc.zip").exists()


def test_a_live_writer_is_left_alone(tmp_path):
    store = fake_store(tmp_path / "s", [])
    seen = []

    def fill(file):
        file.write(b"half")
        seen.append(EpisodeStore.open(store.path))
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left on device"):
        store._publish(fill)
    assert seen[0].interrupted == [] and len(seen[0]) == 0


def test_two_writers_append_side_by_side(tmp_path):
    path = tmp_path / "s"
    fake_store(path, [])
    processes = [writer(path, 100 * k, 12) for k in range(2)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    store = EpisodeStore.open(path)
    assert sorted(meta.source.seed for meta in store.metas) == [*range(12), *range(100, 112)]
    assert [store.file(i).name for i in range(24)] == [f"{i:06d}.zip" for i in range(24)]


FULL_DISK = """
import resource, signal, sys
from robowm.data.fake import fake_episode
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
store = EpisodeStore.open(sys.argv[1])
try:
    store.append(fake_episode(store.spec, 60))
except UserError as error:
    print(error)
"""


def test_a_file_system_that_takes_no_more_loses_nothing(tmp_path):
    store = fake_store(tmp_path / "s", [5, 6])
    before = store.fingerprint()
    result = subprocess.run([sys.executable, "-c", FULL_DISK, str(store.path)], capture_output=True, text=True)
    assert "cannot write episode 2" in result.stdout and "the 2 episodes before it are safe" in result.stdout, result.stderr
    assert result.stdout.count("\n") == 1
    assert list((store.path / ".writing").glob("*.zip")) == []
    assert EpisodeStore.open(store.path).fingerprint() == before


# ------------------------------------------------------------------ whole stores


def test_merge_then_split_gives_back_the_originals(tmp_path):
    first, second = fake_store(tmp_path / "a", [3, 50, 2]), fake_store(tmp_path / "b", [40, 0], first_seed=10)
    merged = merge_stores([first.path, second.path], tmp_path / "m")
    assert merged.lengths.tolist() == [3, 50, 2, 40, 0]
    assert select_episodes(merged.path, range(3), tmp_path / "a2").fingerprint() == first.fingerprint()
    assert select_episodes(merged.path, [3, 4], tmp_path / "b2").fingerprint() == second.fingerprint()
    for i, original in enumerate([first.file(0), first.file(1), first.file(2), second.file(0), second.file(1)]):
        assert merged.file(i).read_bytes() == original.read_bytes()


def test_merge_refuses_stores_that_were_recorded_differently(tmp_path):
    fake_store(tmp_path / "a", [3])
    fake_store(tmp_path / "b", [3], spec=fake_spec(fps=20.0))
    with pytest.raises(UserError, match="recorded differently"):
        merge_stores([tmp_path / "a", tmp_path / "b"], tmp_path / "m")
    with pytest.raises(UserError, match="no episode 5; it holds 0 to 0"):
        select_episodes(tmp_path / "a", [5], tmp_path / "c")


def test_fingerprint_follows_content_order_and_spec(tmp_path):
    a, b = fake_store(tmp_path / "a", [3, 4]), fake_store(tmp_path / "b", [3, 4])
    assert a.fingerprint() == b.fingerprint()
    assert fake_store(tmp_path / "c", [3, 4], first_seed=1).fingerprint() != a.fingerprint()
    assert select_episodes(a.path, [1, 0], tmp_path / "d").fingerprint() != a.fingerprint()
    before = a.fingerprint()
    a.append(fake_episode(a.spec, 2))
    assert a.fingerprint() != before


def test_a_sealed_store_is_an_artefact_and_does_not_grow(tmp_path):
    store = fake_store(tmp_path / "s", [3, 4], success=[1, 0])
    store.seal(inputs={"policy": "abc"}, config={"episodes": 2})
    record = read_artefact(store.path, "store")
    assert record["fingerprint"] == store.fingerprint() and record["inputs"] == {"policy": "abc"}
    assert (record["episodes"], record["steps"], record["successes"], record["judged"]) == (2, 7, 1, 2)
    with pytest.raises(UserError, match="does not grow"):
        EpisodeStore.open(store.path).append(fake_episode(store.spec, 3))
