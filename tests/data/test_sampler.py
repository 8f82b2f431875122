"""Clips: frames and actions are paired, windows stay in their episode, batches are a function of (seed, step)."""

import dataclasses

import numpy as np
import pytest
import torch

from robowm.data.fake import fake_episode, fake_spec, fake_store, step_of_frame, step_of_row
from robowm.data.sampler import ClipReader, ClipSampler, held_out
from robowm.data.shares import StoreShare
from robowm.data.sidecar import write_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError

LENGTHS = [3, 50, 2, 40, 0]
CAMERAS = ["external", "wrist"]


def sampler(stores, **changes):
    settings = {"cameras": CAMERAS, "obs_offsets": [-1, 0], "action_offsets": list(range(-1, 7)), "batch_size": 64, "seed": 0}
    return ClipSampler(stores, **{**settings, **changes})


def same(a, b):
    for field in dataclasses.fields(a):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if isinstance(left, dict):
            assert left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)
        elif isinstance(left, torch.Tensor):
            assert torch.equal(left.nan_to_num(-1.0), right.nan_to_num(-1.0)) and left.dtype == right.dtype
        else:
            assert left == right
    return True


@pytest.fixture
def store(tmp_path):
    return fake_store(tmp_path / "s", LENGTHS)


@pytest.mark.parametrize("budget", [1 << 30, 0], ids=["memory", "disk"])
def test_frame_state_and_action_of_a_clip_encode_the_steps_it_claims(store, budget):
    clip = sampler([{"path": store.path}], budget=budget).batch(3)
    starts = np.array([ref.start for ref in clip.refs])  # of the action window, which begins one step before the anchor
    lengths = store.lengths[[ref.episode for ref in clip.refs]]
    anchors = np.where(clip.action_valid[:, 0].numpy(), starts + 1, 0)
    for k, offset in enumerate([-1, 0]):
        expected = np.clip(anchors + offset, 0, lengths)
        for camera in CAMERAS:
            np.testing.assert_array_equal(step_of_frame(clip.frames[camera][:, k].numpy()), expected)
        np.testing.assert_array_equal(step_of_row(clip.state[:, k].numpy()), expected)
        np.testing.assert_array_equal(clip.environment_state[:, k, 0].numpy(), expected)
    for h, offset in enumerate(range(-1, 7)):
        wanted = anchors + offset
        np.testing.assert_array_equal(step_of_row(clip.action[:, h].numpy()), np.clip(wanted, 0, lengths - 1))
        np.testing.assert_array_equal(clip.action_valid[:, h].numpy(), (wanted >= 0) & (wanted < lengths))


def test_a_world_model_clip_pairs_each_action_with_the_frames_around_it(store):
    clip = sampler([{"path": store.path}], obs_offsets=range(-1, 5), action_offsets=range(4), anchors="future").batch(0)
    frames, actions = step_of_frame(clip.frames["wrist"].numpy()), step_of_row(clip.action.numpy())
    np.testing.assert_array_equal(frames[:, 1:-1], actions)
    np.testing.assert_array_equal(frames[:, 2:], actions + 1)
    assert clip.action_valid.all() and clip.obs_valid[:, 1:].all()


def test_no_window_leaves_its_episode(store):
    clips = sampler([{"path": store.path}], anchors="inside", batch_size=512).batch(0)
    assert clips.action_valid.all() and clips.obs_valid.all()
    assert {ref.episode for ref in clips.refs} == {1, 3}
    for ref in clips.refs:
        assert ref.start >= 0 and ref.stop <= LENGTHS[ref.episode] and ref.stop - ref.start == 8
    np.testing.assert_array_equal(np.diff(step_of_row(clips.action.numpy()), axis=1), 1)
    goal = clips.environment_state[..., 2].numpy()
    np.testing.assert_array_equal(goal, np.array([[LENGTHS[ref.episode]] * 2 for ref in clips.refs]))


def test_a_filter_keeps_ids_and_content_together(store):
    reader = ClipReader([store], CAMERAS, episodes=[np.array([1, 3])])
    clip = reader.read(np.array([0, 1]), np.array([10, 20]), [0], [0])
    assert [(ref.episode, ref.start, ref.stop) for ref in clip.refs] == [(1, 10, 11), (3, 20, 21)]
    assert clip.environment_state[:, 0].tolist() == [[10.0, 1.0, 50.0], [20.0, 3.0, 40.0]]


@pytest.mark.parametrize("budget", [1 << 30, 0], ids=["memory", "disk"])
def test_batches_depend_on_seed_and_step_alone(store, budget):
    one, two = sampler([{"path": store.path}], budget=budget), sampler([{"path": store.path}])
    late = one.batch(7)
    one.batch(1)
    assert same(one.batch(7), late) and same(two.batch(7), late)
    assert two.batch(8).refs != late.refs and sampler([{"path": store.path}], seed=1).batch(7).refs != late.refs


def test_all_anchors_are_drawn_equally_often(store):
    drawing = sampler([{"path": store.path}], batch_size=95)
    counts = np.bincount(np.concatenate([drawing.draw(i) for i in range(400)]), minlength=len(drawing))
    assert len(drawing) == 95 and abs(counts - 400).max() < 5 * np.sqrt(400)


def test_shares_hold_whatever_the_sizes(tmp_path):
    small, large = fake_store(tmp_path / "a", [5]), fake_store(tmp_path / "b", [60, 60])
    stores = [StoreShare(small.path, 3.0), StoreShare(large.path, 1.0)]
    refs = [ref.store for step in range(50) for ref in sampler(stores).batch(step).refs]
    share = np.mean([ref == str(small.path) for ref in refs])
    assert abs(share - 0.75) < 4 * np.sqrt(0.75 * 0.25 / len(refs))


def test_only_success_keeps_judged_successes(tmp_path):
    store = fake_store(tmp_path / "s", [9, 9, 9], success=[1, 0, float("nan")])
    clip = sampler([{"path": store.path, "only_success": True}]).batch(0)
    assert {ref.episode for ref in clip.refs} == {0} and (clip.success == 1).all()
    every = sampler([{"path": store.path}]).batch(0)
    assert {ref.episode for ref in every.refs} == {0, 1, 2} and every.success.isnan().any()
    failures = fake_store(tmp_path / "f", [9], success=[0])
    with pytest.raises(UserError, match=r"none of 1 episodes .* judged successful"):
        sampler([{"path": failures.path, "only_success": True}])


def test_weights_follow_their_steps_through_filters(tmp_path):
    store = fake_store(tmp_path / "s", [9, 9, 9], success=[0, 1, 1])
    write_sidecar(store, "habc", {"weight": np.arange(27, dtype=np.float32)})
    clip = sampler([StoreShare(store.path, only_success=True, weights="habc")]).batch(0)
    expected = torch.tensor([[9.0 * ref.episode] for ref in clip.refs]) + torch.from_numpy(step_of_row(clip.action.numpy())).float()
    assert torch.equal(clip.weight[clip.action_valid], expected[clip.action_valid])
    assert (sampler([StoreShare(store.path)]).batch(0).weight == 1).all()
    write_sidecar(store, "other", {"value": np.zeros(27, np.float32)})
    with pytest.raises(UserError, match="no 'weight'; it has value"):
        sampler([StoreShare(store.path, weights="other")])


def test_clips_that_weigh_nothing_are_not_drawn_and_their_store_keeps_its_part_of_the_loss(tmp_path):
    first, second = fake_store(tmp_path / "a", [40, 40]), fake_store(tmp_path / "b", [40])
    weight = np.r_[np.zeros(40), np.full(40, 2.0)].astype(np.float32)  # mean 1, as normalised weights have it
    write_sidecar(first, "w", {"weight": weight})
    for share in (1.0, None):
        plain = sampler([{"path": first.path, "share": share}, {"path": second.path, "share": share}], batch_size=4000).batch(0)
        found = sampler(
            [{"path": first.path, "share": share, "weights": "w"}, {"path": second.path, "share": share}], batch_size=4000
        ).batch(0)
        drawn = np.array([(ref.store == str(first.path), ref.episode) for ref in found.refs])
        assert not ((drawn[:, 0] == 1) & (drawn[:, 1] == 0)).any()
        wanted = np.mean([ref.store == str(first.path) for ref in plain.refs])
        part = found.weight[torch.from_numpy(drawn[:, 0] == 1)].sum() / found.weight.sum()
        assert part == pytest.approx(wanted, abs=0.03)
    write_sidecar(first, "none", {"weight": np.zeros(80, np.float32)})
    with pytest.raises(UserError, match="nothing is left to learn from"):
        sampler([{"path": first.path, "weights": "none"}])


def test_early_batches_are_weighed_otherwise_and_are_of_the_same_clips(tmp_path):
    store = fake_store(tmp_path / "s", [30])
    write_sidecar(store, "first", {"weight": np.full(30, 3.0, np.float32)})
    write_sidecar(store, "then", {"weight": np.full(30, 5.0, np.float32)})
    share = StoreShare(store.path, weights="then", early_weights="first")
    source, later = sampler([share], early_steps=2), sampler([StoreShare(store.path, weights="then")])
    for step, weight in ((0, 3), (1, 3), (2, 5)):
        clip = source.batch(step)
        assert (clip.weight == weight).all() and clip.refs == later.batch(step).refs
    for early_steps, entry in ((0, share), (5, StoreShare(store.path, weights="then"))):
        with pytest.raises(UserError, match=f"early_steps={early_steps}"):
            sampler([entry], early_steps=early_steps)
    assert "early_weights" in share.settings() and "early_weights" not in StoreShare(store.path).settings()


def test_an_indicator_of_improvement_travels_with_its_anchor(tmp_path):
    store, other = fake_store(tmp_path / "s", [30]), fake_store(tmp_path / "t", [30])
    improved = np.arange(30) % 2
    write_sidecar(store, "recap", {"weight": np.ones(30, np.float32), "improved": improved})
    clip = sampler([StoreShare(store.path, weights="recap"), StoreShare(other.path)], action_offsets=[0, 1, 2]).batch(0)
    for ref, mark in zip(clip.refs, clip.improved.tolist(), strict=True):
        assert mark == (improved[ref.start] if ref.store == str(store.path) else -1)
    assert sampler([StoreShare(other.path)]).batch(0).improved is None


def test_validation_episodes_stay_apart_when_the_store_grows_and_across_stores(tmp_path):
    first = fake_store(tmp_path / "a", [4] * 40)
    apart = held_out(first.metas, 0.25)
    assert 2 <= apart.sum() <= 20
    longer = fake_store(tmp_path / "b", [7] * 60)
    np.testing.assert_array_equal(held_out(longer.metas, 0.25)[:40], apart)
    train = sampler([{"path": first.path}], holdout=0.25, batch_size=999).batch(0)
    validation = sampler([{"path": first.path}], holdout=0.25, batch_size=999, split="validation").batch(0)
    assert {ref.episode for ref in validation.refs} == set(np.flatnonzero(apart))
    assert {ref.episode for ref in train.refs} == set(np.flatnonzero(~apart))


def test_cameras_of_different_sizes_and_a_subset_of_cameras(tmp_path):
    store = fake_store(tmp_path / "s", [20], spec=fake_spec({"external": (48, 64), "wrist": (16, 16)}))
    both = sampler([{"path": store.path}]).batch(0)
    assert both.frames["external"].shape == (64, 2, 48, 64, 3) and both.frames["wrist"].shape == (64, 2, 16, 16, 3)
    assert both.frames["external"].dtype == torch.uint8
    assert set(sampler([{"path": store.path}], cameras=["wrist"]).batch(0).frames) == {"wrist"}
    assert sampler([{"path": store.path}], cameras=[]).batch(0).frames == {}


def test_row_anchors_reach_the_last_frame(tmp_path):
    store = fake_store(tmp_path / "s", [4])
    drawing = sampler([{"path": store.path}], obs_offsets=[0], action_offsets=[0], anchors="rows")
    clip = drawing.clips(np.arange(len(drawing)))
    assert step_of_frame(clip.frames["wrist"][:, 0].numpy()).tolist() == [0, 1, 2, 3, 4]
    assert clip.action_valid[:, 0].tolist() == [True] * 4 + [False] and clip.obs_valid.all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cameras": ["external", "wirst"]}, "no camera 'wirst'; did you mean 'wrist'"),
        ({"anchors": "polcy"}, "did you mean 'policy'"),
        ({"split": "test"}, "split is 'test'"),
        ({"anchors": "inside", "action_offsets": range(60)}, "no episode is long enough"),
        ({"holdout": 1.0}, "none of 5 episodes is in split 'train'"),
        ({"obs_offsets": []}, "obs_offsets"),
    ],
)
def test_wrong_settings_are_named(store, changes, message):
    with pytest.raises(UserError, match=message) as error:
        sampler([{"path": store.path}], **changes)
    assert "\n" not in str(error.value)


def test_stores_that_do_not_fit_together_are_named(tmp_path, store):
    with pytest.raises(UserError, match="holds no episodes"):
        sampler([{"path": EpisodeStore.create(tmp_path / "empty", fake_spec()).path}])
    small = fake_store(tmp_path / "small", [9], spec=fake_spec({"external": (16, 16), "wrist": (16, 16)}))
    with pytest.raises(UserError, match=r"'external' is \(16, 16\) in .*small, \(32, 32\)"):
        sampler([{"path": store.path}, {"path": small.path}])
    delta = EpisodeStore.create(tmp_path / "delta", dataclasses.replace(fake_spec(), action_kind="delta"))
    delta.append(fake_episode(delta.spec, 9))
    with pytest.raises(UserError, match=r"action_kind is delta in .*, absolute in"):
        sampler([{"path": store.path}, {"path": delta.path}])
    with pytest.raises(UserError, match="share above 0"):
        sampler([{"path": store.path, "share": 0.0}])
