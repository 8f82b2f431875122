from __future__ import annotations

import mujoco
import numpy as np
import pytest

from robowm.data.store import StoreSpec
from sim.experts import ScriptedExpert
from sim.render import Renderer
from sim.tabletop import TabletopEnv
from tests.sim.test_render import red

TASKS = ["push", "pick_place", "insert"]
STACKED = """
<mujoco><worldbody><camera name="down" pos="0 0 1" fovy="60"/>
  <geom type="box" size=".3 .3 .01"/><geom type="box" size=".1 .1 .01" pos="0 0 .1"/><geom type="box" size=".1 .1 .01" pos="-.2 .2 .1"/>
</worldbody></mujoco>"""


def shown(task, steps=16, n=3, **settings):
    """Return the frames after some steps of the expert."""
    env, expert = TabletopEnv(task, n=n, **settings), ScriptedExpert(task)
    obs, memory, rngs = env.reset(range(n)), expert.start(n), [np.random.default_rng(i) for i in range(n)]
    for _ in range(steps):
        actions, memory = expert.act(obs, memory, rngs)
        obs = env.step(actions, np.ones(n, bool)).obs
    env.close()
    return obs.frames


def test_each_pixel_has_the_label_of_what_is_in_front(gl):
    model = mujoco.MjModel.from_xml_string(STACKED)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    renderer = Renderer(model, 32, ["down"], tiles=1)
    before = renderer.render([data])
    labels = renderer.labels([data, data], np.array([7, 0, 200]))
    assert np.array_equal(labels[0], labels[1]) and set(np.unique(labels)) == {0, 7, 200}
    assert labels[0, 0, 16, 16] == 0 and labels[0, 0, 16, 23] == 7, "what has no label still hides what is behind it"
    assert labels[0, 0, 9, 9] == 200 and labels[0, 0, 9, 22] == 7 and labels[0, 0, 0, 0] == 0
    assert np.array_equal(renderer.render([data]), before), "pictures look as before"


@pytest.mark.parametrize("size", [32, 96])
@pytest.mark.parametrize("task", TASKS)
def test_masks_lie_on_what_they_name_and_pictures_do_not_change(gl, task, size):
    frames = shown(task, image_size=size, masks=True)
    plain = shown(task, image_size=size)
    assert list(frames) == ["external", "wrist", "external_mask", "wrist_mask"] and list(plain) == ["external", "wrist"]
    for camera in plain:
        assert np.array_equal(frames[camera], plain[camera])
        mask = frames[camera + "_mask"]
        assert mask.shape == plain[camera].shape and mask.dtype == np.uint8 and set(np.unique(mask)) == {0, 255}
        assert (mask.astype(bool).sum(-1) <= 1).all(), "a pixel shows one thing"
        gripper, thing, target = np.moveaxis(mask > 0, -1, 0)
        picture = plain[camera].astype(int)
        reddish = red(picture)
        assert thing.any() and (reddish & thing).sum() > 0.9 * max(reddish.sum(), thing.sum())
        assert gripper.any() and not reddish[gripper].any()
        goal = (picture[..., 1] if task == "push" else picture[..., 2]) > picture[..., 0] + 30
        assert (goal & target).sum() >= 0.9 * max(goal.sum(), target.sum())
        light = (picture[..., 0] > picture[..., 2] + 40) & ~reddish  # the yellow fingers
        assert light.any() and gripper[light].all()


def test_they_are_part_of_the_specification_and_of_every_worker(gl):
    one, two = (TabletopEnv("push", n=4, image_size=16, masks=True, workers=workers) for workers in (1, 2))
    assert list(StoreSpec(**one.spec()).cameras) == ["external", "wrist", "external_mask", "wrist_mask"]
    a, b = one.reset(range(4)), two.reset(range(4))
    assert all(np.array_equal(a.frames[name], b.frames[name]) for name in one.spec()["cameras"])
    two.close()


def test_a_rewound_or_idle_episode_shows_its_mask_again(gl):
    env = TabletopEnv("pick_place", n=2, image_size=16, cameras=("wrist",), masks=True)
    obs = env.reset([0, 1])
    state = env.get_state()
    target = obs.state + np.array([0, 0.05, -0.05, 0, 1], np.float32)
    after = env.step(target.repeat(4, 1), np.array([True, False])).obs.frames["wrist_mask"]
    first = obs.frames["wrist_mask"]
    assert np.array_equal(after[1], first[1].repeat(4, 0)) and not np.array_equal(after[0, -1], first[0, 0])
    assert np.array_equal(env.set_state(state).frames["wrist_mask"], first)


def test_without_cameras_there_are_no_masks():
    env = TabletopEnv("push", n=1, cameras=(), masks=True)
    assert env.spec()["cameras"] == {} and env.reset([0]).frames == {}
