"""The one place that talks to OpenGL. Nothing here is loaded before the first picture is asked for.

``mujoco.Renderer`` frees its GL context before the objects inside it and does not make its context current on close, which silently
corrupts other live renderers; this wrapper makes its own context current before each use and frees in the right order.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import sys
import weakref
from collections.abc import Sequence

import mujoco
import numpy as np

from robowm.errors import UserError

BACKENDS = ("egl", "osmesa")
INSTALL = "apt-get install -y --no-install-recommends libegl1 libosmesa6 libgl1"
_EGL_PLATFORM_DEVICE = 0x313F  # EGL_PLATFORM_DEVICE_EXT
_chosen: list[str] = []  # the back-end that this process renders with, once known: GL libraries cannot be changed after loading
_live: weakref.WeakSet[Renderer] = weakref.WeakSet()


def backend_name() -> str:
    """Return the back-end this process renders with, or "none" when nothing has been rendered yet."""
    return _chosen[0] if _chosen else "none"


def _missing_egl() -> str | None:
    """Return why EGL cannot work here, or None. Loads libEGL privately: once PyOpenGL has loaded it, OSMesa cannot be used any more."""
    try:
        egl = ctypes.CDLL("libEGL.so.1", mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        return str(error)
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    query, display_of = (egl.eglGetProcAddress(name) for name in (b"eglQueryDevicesEXT", b"eglGetPlatformDisplayEXT"))
    if not query or not display_of:
        return "libEGL has no device extension"
    pointer = ctypes.c_void_p
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, pointer, pointer)(query)
    display_of = ctypes.CFUNCTYPE(pointer, ctypes.c_uint, pointer, pointer)(display_of)
    egl.eglInitialize.argtypes = [pointer, pointer, pointer]
    devices, count = (pointer * 16)(), ctypes.c_int(0)
    query(16, devices, ctypes.byref(count))
    for device in devices[: count.value]:
        display = display_of(_EGL_PLATFORM_DEVICE, device, None)
        if display and egl.eglInitialize(display, None, None):
            return None
    return f"none of {count.value} EGL devices can be initialised"


def _open_context(backend: str, width: int, height: int):
    """Import one back-end and return a current GL context; raises ImportError with one line when it cannot work here."""
    os.environ.setdefault("LP_NUM_THREADS", "1")  # llvmpipe's threads cost more than they save on small pictures
    if backend == "egl" and (why := _missing_egl()):
        raise ImportError(why)
    asked = os.environ.get("PYOPENGL_PLATFORM")
    try:
        module = importlib.import_module(f"mujoco.{backend}")
    except (ImportError, AttributeError, TypeError, OSError) as error:  # what PyOpenGL raises where a library is missing
        for name in [name for name in sys.modules if name.split(".")[0] == "OpenGL" or name.startswith(f"mujoco.{backend}")]:
            del sys.modules[name]
        if asked is None:
            os.environ.pop("PYOPENGL_PLATFORM", None)
        raise ImportError(f"{type(error).__name__}: {error}") from error
    context = module.GLContext(width, height)
    context.make_current()
    return context


def _open_any_context(width: int, height: int):
    """Try the back-ends in order (``MUJOCO_GL`` alone when it names one) and remember the first that works."""
    named = os.environ.get("MUJOCO_GL", "").strip().lower()
    tried = []
    for backend in _chosen or ([named] if named in BACKENDS else BACKENDS):
        try:
            context = _open_context(backend, width, height)
        except (ImportError, RuntimeError) as error:
            tried.append(f"{backend}: {str(error).splitlines()[0]}")
        else:
            if not _chosen:
                atexit.register(_close_all)  # after the back-end registered its own clean-up, so that ours runs before it
            _chosen[:] = [backend]
            return context
    raise UserError(f"no OpenGL back-end works here ({'; '.join(tried)}); install one: {INSTALL}, or run with cameras=[] (state only)")


def _close_all() -> None:
    for renderer in list(_live):
        renderer.close()


class Renderer:
    """Draws one model's cameras, without shadows, reflections or antialiasing, several states in one read-back.

    Args:
        model: shared by all ``data`` passed to ``render``.
        size: pictures are ``size`` x ``size`` pixels.
        cameras: names of cameras in the model.
        tiles: most pictures drawn before one read-back.
        groups: of geoms that are drawn.

    Raises:
        UserError: no GL back-end works, or the model has no such camera.
    """

    def __init__(self, model: mujoco.MjModel, size: int, cameras: Sequence[str], tiles: int = 32, groups: Sequence[int] = (0, 1, 2)):
        self._context = self._gl = None
        self._model, self._size, self._tiles = model, size, tiles
        self._views = []
        for name in cameras:
            view = mujoco.MjvCamera()
            view.type, view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera(name).id
            self._views.append(view)
        model.vis.quality.shadowsize = 0
        model.vis.quality.offsamples = 0
        model.vis.global_.offwidth, model.vis.global_.offheight = size, size * tiles
        self._gl = _open_any_context(size, size * tiles)
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=max(100, 2 * (model.ngeom + model.nsite)))
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = [group in groups for group in range(mujoco.mjNGROUP)]
        _live.add(self)

    def render(self, datas: Sequence[mujoco.MjData]) -> np.ndarray:
        """Return uint8 [len(datas), V, size, size, 3] RGB, row 0 at the top. The data's positions must be up to date."""
        return self._pictures(datas, None)

    def labels(self, datas: Sequence[mujoco.MjData], label: np.ndarray) -> np.ndarray:
        """Return uint8 [len(datas), V, size, size]: ``label`` int [ngeom] (0 to 254) of the geom seen at each pixel, 0 where none is."""
        return np.maximum(self._pictures(datas, label)[..., 0], 1) - 1

    def _pictures(self, datas: Sequence[mujoco.MjData], label: np.ndarray | None) -> np.ndarray:
        count, views, size = len(datas), len(self._views), self._size
        out = np.empty((count * views, size, size, 3), np.uint8)
        self._gl.make_current()
        for first in range(0, count * views, self._tiles):
            stop = min(first + self._tiles, count * views)
            for index in range(first, stop):
                self._draw(datas[index // views], self._views[index % views], index - first, label)
            rect = mujoco.MjrRect(0, 0, size, size * (stop - first))
            pixels = np.empty((stop - first, size, size, 3), np.uint8)
            mujoco.mjr_readPixels(pixels.reshape(-1, size, 3), None, rect, self._context)
            out[first:stop] = pixels[:, ::-1]
        return out.reshape(count, views, size, size, 3)

    def _draw(self, data, view, tile: int, label: np.ndarray | None) -> None:
        mujoco.mjv_updateScene(self._model, data, self._option, None, view, mujoco.mjtCatBit.mjCAT_ALL.value, self._scene)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        for flag in (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR):
            self._scene.flags[flag] = label is not None
        if label is not None:  # a geom is drawn in the colour of its segmentation id + 1, red being the lowest byte; 0 is the background
            for geom in self._scene.geoms[: self._scene.ngeom]:
                geom.segid = label[geom.objid]
        mujoco.mjr_render(mujoco.MjrRect(0, tile * self._size, self._size, self._size), self._scene, self._context)

    def close(self) -> None:
        """Free GL objects, then the context they live in. Safe to call twice."""
        if self._context is not None:
            self._gl.make_current()
            self._context.free()
            self._context = None
        if self._gl is not None:
            self._gl.free()
            self._gl = None

    def __del__(self):
        self.close()
