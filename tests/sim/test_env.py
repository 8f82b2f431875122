from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from robowm.errors import UserError
from robowm.protocols import Env, Rewindable
from robowm.rollout import run_episodes
from sim.experts import OpenLoop, ScriptedExpert
from sim.tabletop import TabletopEnv


def all_on(n):
    return np.ones(n, bool)


def wander(seed, n, horizon):
    rng = np.random.default_rng(seed)
    low, high = [-0.1, -0.1, 0.014, -1, 0], [0.1, 0.1, 0.08, 1, 1]
    return rng.uniform(low, high, (n, horizon, 5)).astype(np.float32)


def test_it_fits_the_protocols_and_its_own_specification(gl):
    env = TabletopEnv("push", n=3, image_size=24)
    assert isinstance(env, Env) and isinstance(env, Rewindable)
    spec, steps = env.spec(), None
    env.reset([1, 2])
    steps = env.step(wander(0, 2, 3), all_on(2))
    assert {name: frames.shape for name, frames in steps.obs.frames.items()} == {c: (2, 3, *hw, 3) for c, hw in spec["cameras"].items()}
    assert all(frames.dtype == np.uint8 for frames in steps.obs.frames.values())
    assert steps.obs.state.shape == (2, 3, len(spec["state_names"]))
    assert steps.obs.environment_state.shape == (2, 3, len(spec["environment_state_names"]))
    assert len(spec["action_names"]) == 5 and spec["fps"] == env.fps == 10 and spec["action_kind"] == "absolute"
    assert steps.valid.all() and not steps.terminated.any() and (steps.reward == steps.success).all()


@pytest.mark.parametrize("task", ["push", "pick_place", "insert"])
def test_rewinding_and_replaying_gives_the_same_bits_and_pixels(gl, task):
    env = TabletopEnv(task, n=4, image_size=32)
    expert, rngs = ScriptedExpert(task, noise=0.004), [np.random.default_rng(i) for i in range(4)]
    obs, memory = env.reset(range(4)), expert.start(4)
    for _ in range(18):  # into contact
        actions, memory = expert.act(obs, memory, rngs)
        obs = env.step(actions, all_on(4)).obs
    saved, shown, replayed = env.get_state(), obs, wander(1, 4, 6)
    first = env.step(replayed, all_on(4))
    end = env.get_state()
    back = env.set_state(saved)
    assert np.array_equal(back.state[:, -1], shown.state[:, -1])
    assert all(np.array_equal(back.frames[c][:, -1], shown.frames[c][:, -1]) for c in back.frames)
    again = env.step(replayed, all_on(4))
    assert np.array_equal(env.get_state(), end)
    assert np.array_equal(again.obs.environment_state, first.obs.environment_state)
    assert all(np.array_equal(again.obs.frames[c], first.obs.frames[c]) for c in first.obs.frames)
    other = TabletopEnv(task, n=4, image_size=32)  # a state means the same in another process or environment
    other.set_state(saved)
    assert np.array_equal(other.step(replayed, all_on(4)).obs.frames["wrist"], first.obs.frames["wrist"])


def test_the_simulators_truth_also_says_where_things_are_from_each_other():
    env = TabletopEnv("push", n=2, cameras=())
    obs = env.reset([0, 1])
    truth, hand = obs.environment_state[:, 0], obs.state[:, 0, :3]
    named = dict(zip(env.spec()["environment_state_names"], truth.T, strict=True))
    apart = [named[f"hand_to_object_{axis}"] for axis in "xyz"]
    np.testing.assert_allclose(np.stack(apart, 1), truth[:, :3] - hand, atol=1e-6)
    np.testing.assert_allclose(named["object_to_target_y"], named["target_y"] - named["object_y"], atol=1e-6)


def test_an_episode_does_not_depend_on_its_neighbours():
    def episodes(n, seeds):
        env = TabletopEnv("pick_place", n=n, cameras=())
        return [r.episode for r in run_episodes(env, ScriptedExpert(noise=0.004), seeds, max_steps=30, kind="rollout")]

    wide, narrow = episodes(5, range(5)), episodes(2, range(5))
    for a, b in zip(wide, narrow, strict=True):
        assert np.array_equal(a.action, b.action)
        assert np.array_equal(a.environment_state, b.environment_state)


def test_inactive_environments_stand_still_and_show_what_they_showed(gl):
    env = TabletopEnv("push", n=2, image_size=16)
    before = env.reset([0, 1])
    steps = env.step(wander(2, 2, 4), np.array([True, False]))
    assert steps.valid.tolist() == [[True] * 4, [False] * 4]
    assert (steps.obs.state[1] == before.state[1]).all()
    assert (steps.obs.frames["external"][1] == before.frames["external"][1]).all()
    assert not np.array_equal(steps.obs.frames["external"][0, -1], before.frames["external"][0, -1])


def test_render_rows_draws_the_last_rows_only_and_they_are_the_right_ones(gl):
    full, last = (TabletopEnv("push", n=2, image_size=16, render_rows=rows) for rows in (None, 2))
    full.reset([0, 1]), last.reset([0, 1])
    actions = wander(3, 2, 5)
    a, b = full.step(actions, all_on(2)).obs, last.step(actions, all_on(2)).obs
    assert b.frames["wrist"].shape[1] == 2 and b.state.shape[1] == 5
    assert np.array_equal(a.frames["wrist"][:, -2:], b.frames["wrist"])
    assert np.array_equal(a.state, b.state)


def test_episodes_whose_rows_were_not_all_drawn_come_without_frames(gl):
    env = TabletopEnv("push", n=2, image_size=16, render_rows=2)
    episode = next(run_episodes(env, OpenLoop(chunk=4), [0, 1], max_steps=8, kind="rollout")).episode
    assert episode.frames == {} and len(episode) == 8


def test_targets_are_clipped_to_the_workspace_and_the_set_point_has_a_top_speed():
    env = TabletopEnv("push", n=1, cameras=())
    start = env.reset([0]).state[0, 0]
    far = np.full((1, 1, 5), 9, np.float32)
    one = env.step(far, all_on(1)).obs.state[0, 0]
    assert (one[:3] - start[:3] < 0.055).all() and one[0] > start[0] + 0.02
    end = env.step(np.repeat(far, 60, axis=1), all_on(1)).obs.state[0, -1]
    assert end[:4] == pytest.approx([0.12, 0.12, 0.15, 1.4], abs=0.002)


def test_a_delta_of_zero_keeps_the_set_point_and_a_delta_moves_it():
    env = TabletopEnv("push", n=1, cameras=(), action_kind="delta")
    start = env.reset([0]).state[0, 0]
    still = np.array([[[0, 0, 0, 0, 1]]], np.float32)
    assert env.step(np.repeat(still, 10, axis=1), all_on(1)).obs.state[0, -1] == pytest.approx(start, abs=0.02)
    moved = still + np.array([0, 0.01, 0, 0, 0], np.float32)
    end = env.step(np.concatenate([moved, moved, *[still] * 10], axis=1), all_on(1)).obs.state[0, -1]
    assert end[1] - start[1] == pytest.approx(0.02, abs=0.001)
    assert env.spec()["action_kind"] == "delta"


def test_a_state_only_run_loads_no_opengl():
    code = (
        "import sys, numpy as np; from sim.tabletop import TabletopEnv; e = TabletopEnv(n=1, cameras=()); o = e.reset([0]);"
        "e.step(o.state, np.ones(1, bool)); sys.exit(any(m.split('.')[0] == 'OpenGL' for m in sys.modules))"
    )
    env = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}  # other tests set them
    assert subprocess.run([sys.executable, "-c", code], check=False, env=env).returncode == 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"cameras": ("wirst",)}, "wrist"),
        ({"task": "psh"}, "push"),
        ({"image_size": 8}, "16 to 256"),
        ({"action_kind": "velocity"}, "absolute"),
        ({"n": 0}, "n=0"),
    ],
)
def test_bad_settings_name_what_is_wrong(settings, named):
    with pytest.raises(UserError, match=named):
        TabletopEnv(**{"cameras": (), **settings})


def test_bad_actions_states_and_seeds_are_refused():
    env = TabletopEnv("push", n=2, cameras=())
    env.reset([0, 1])
    good = env.get_state()
    bad = wander(0, 2, 1)
    bad[1, 0, 2] = np.nan
    with pytest.raises(UserError, match=r"NaN.*episode 1"):
        env.step(bad, all_on(2))
    env.step(bad, np.array([True, False]))  # nobody looks at an inactive environment's action
    with pytest.raises(UserError, match=r"shape \(2, 1, 4\)"):
        env.step(bad[..., :4], all_on(2))
    with pytest.raises(UserError, match="3 seeds"):
        env.reset([0, 1, 2])
    with pytest.raises(UserError, match="states have shape"):
        env.set_state(good[:, :-1])
