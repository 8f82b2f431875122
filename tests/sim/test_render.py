from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys

import mujoco
import numpy as np
import pytest

from robowm.errors import UserError
from sim import render
from sim.tabletop import TabletopEnv

CORNERS = """
<mujoco><visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual><worldbody>
  <camera name="down" pos="0 0 1" fovy="60"/>
  <geom type="box" size=".1 .1 .01" pos="-.3 .3 0" rgba="1 0 0 1"/>
  <geom type="box" size=".1 .1 .01" pos=".3 .3 0" rgba="0 1 0 1"/>
  <geom type="box" size=".1 .1 .01" pos="-.3 -.3 0" rgba="0 0 1 1"/>
</worldbody></mujoco>"""


def test_row_zero_is_the_top_and_channels_are_rgb(gl):
    model = mujoco.MjModel.from_xml_string(CORNERS)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    picture = render.Renderer(model, 32, ["down"]).render([data])[0, 0]
    top_left, top_right, bottom_left = picture[7, 7], picture[7, 24], picture[24, 7]
    assert [corner.argmax() for corner in (top_left, top_right, bottom_left)] == [0, 1, 2]
    assert all(corner.max() > 200 and np.sort(corner)[1] < 50 for corner in (top_left, top_right, bottom_left))


def red(frames):
    return (frames[..., 0] > 2.0 * frames[..., 1]) & (frames[..., 0] > 2.0 * frames[..., 2]) & (frames[..., 0] > 100)


@pytest.mark.parametrize("task", ["push", "pick_place", "insert"])
def test_object_and_target_show_in_the_external_view_at_32_pixels(gl, task):
    frames = TabletopEnv(task, n=50, image_size=32).reset(range(50)).frames["external"][:, 0].astype(int)
    target = (frames.argmax(-1) > 0) & (frames.max(-1) > frames.min(-1) + 60)
    assert (red(frames).sum((1, 2)) >= 8).mean() >= 0.96  # the hand may hide it now and then
    assert (target.sum((1, 2)) >= 10).mean() >= 0.96


def test_two_models_in_one_process_do_not_disturb_each_other_nor_does_closing_one(gl):
    push, pick = TabletopEnv("push", n=1, image_size=32), TabletopEnv("pick_place", n=1, image_size=64)
    a, b = push.reset([0]).frames["external"], pick.reset([0]).frames["external"]
    third = TabletopEnv("insert", n=1, image_size=16)
    third.reset([0])
    assert np.array_equal(push.reset([0]).frames["external"], a)
    assert np.array_equal(pick.reset([0]).frames["external"], b)
    third.close()
    push.close()
    push.close()
    assert np.array_equal(pick.reset([0]).frames["external"], b)
    assert np.array_equal(push.reset([0]).frames["external"], a)  # draws again with a fresh renderer


def test_more_pictures_than_fit_one_read_back_come_in_order(gl):
    model = mujoco.MjModel.from_xml_string(CORNERS)
    datas = [mujoco.MjData(model) for _ in range(2)]
    for data in datas:
        mujoco.mj_forward(model, data)
    datas[1].geom_xpos[:, 0] += 0.2
    one, three = (render.Renderer(model, 16, ["down"], tiles=tiles).render([*datas, *datas]) for tiles in (1, 3))
    assert np.array_equal(one, three)
    assert np.array_equal(one[0], one[2]) and not np.array_equal(one[0], one[1])


def test_no_back_end_gives_one_line_with_the_packages(monkeypatch):
    def fail(backend, width, height):
        raise ImportError(f"lib{backend} not found\nmore")

    monkeypatch.setattr(render, "_open_context", fail)
    monkeypatch.setattr(render, "_chosen", [])
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(UserError, match=r"egl: libegl not found; osmesa: libosmesa not found.*libegl1 libosmesa6") as caught:
        TabletopEnv("push", n=1).reset([0])
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(ctypes.util.find_library("OSMesa") is None, reason="libosmesa6 is not installed")
def test_osmesa_takes_over_where_egl_has_no_device():
    code = "from sim.tabletop import TabletopEnv; from sim import render; TabletopEnv(n=1).reset([0]); print(render.backend_name())"
    environment = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    environment["__EGL_VENDOR_LIBRARY_FILENAMES"] = os.devnull
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "osmesa", "")
