from __future__ import annotations

import pytest

from robowm.errors import UserError


@pytest.fixture(scope="session")
def gl():
    """Skip where no OpenGL back-end can be loaded (the message names the packages)."""
    import mujoco

    from sim.render import Renderer

    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><camera name='c'/></worldbody></mujoco>")
    try:
        Renderer(model, 16, ["c"]).close()
    except UserError as error:
        pytest.skip(str(error))
