from __future__ import annotations

import copy
import json

import h5py
import pytest

from robowm.errors import UserError
from sim.robosuite import env_of_file
from sim.robosuite.env_args import settings_of

pytest.importorskip("robosuite", reason="robosuite is not installed: pip install -e '.[robosuite]'")

OLD = {  # as robosuite 1.4 and robomimic wrote it
    "env_name": "PickPlaceCan",
    "env_version": "1.4.1",
    "type": 1,
    "env_kwargs": {
        "has_renderer": False,
        "has_offscreen_renderer": False,
        "ignore_done": True,
        "use_object_obs": True,
        "use_camera_obs": False,
        "control_freq": 20,
        "controller_configs": {
            "type": "OSC_POSE",
            "input_max": 1,
            "input_min": -1,
            "output_max": [0.05, 0.05, 0.05, 0.5, 0.5, 0.5],
            "output_min": [-0.05, -0.05, -0.05, -0.5, -0.5, -0.5],
            "kp": 150,
            "damping": 1,
            "impedance_mode": "fixed",
            "kp_limits": [0, 300],
            "damping_limits": [0, 10],
            "position_limits": None,
            "orientation_limits": None,
            "uncouple_pos_ori": True,
            "control_delta": True,
            "interpolation": None,
            "ramp_ratio": 0.2,
        },
        "robots": ["Panda"],
        "camera_depths": False,
        "camera_heights": 84,
        "camera_widths": 84,
        "reward_shaping": False,
    },
}


def changed(**kwargs):
    env_args = copy.deepcopy(OLD)
    controller = env_args["env_kwargs"]["controller_configs"]
    for key, value in kwargs.items():
        part = env_args if key in env_args else env_args["env_kwargs"] if key in env_args["env_kwargs"] else controller
        part[key] = value
    return env_args


def test_an_old_file_becomes_an_environment_of_today_and_the_version_is_warned_of(tmp_path):
    with h5py.File(tmp_path / "ph.hdf5", "w") as file:
        file.create_group("data").attrs["env_args"] = json.dumps(OLD)
    with pytest.warns(UserWarning, match=r"ph.hdf5 was recorded with robosuite 1.4.1, installed is 1.5.1"):
        env = env_of_file(tmp_path / "ph.hdf5", n=2, cameras=())
    assert env.task_name == "robosuite/can" and env.n == 2
    assert env.spec()["action_kind"] == "delta" and len(env.spec()["action_names"]) == 7
    assert env.reset([0]).environment_state.shape == (1, 1, 14)


def test_absolute_targets_two_arms_and_the_form_of_today_are_understood(recwarn):
    with pytest.warns(UserWarning):
        assert settings_of(changed(control_delta=False)) == {"task": "can", "action_kind": "absolute"}
    with pytest.warns(UserWarning, match="of unknown version"):
        arms = changed(env_name="TwoArmTransport", robots=["Panda", "Panda"], env_version=None)
        assert settings_of(arms) == {"task": "transport", "action_kind": "delta"}
    recwarn.clear()
    arm = {"type": "OSC_POSE", "input_type": "absolute", "input_ref_frame": "world", "kp": 150, "gripper": {"type": "GRIP"}}
    today = changed(env_version="1.5.1", controller_configs={"type": "BASIC", "body_parts": {"right": arm}})
    assert settings_of(json.dumps(today)) == {"task": "can", "action_kind": "absolute"}
    assert not [warning for warning in recwarn if "recorded with" in str(warning.message)]


@pytest.mark.filterwarnings("ignore:.*recorded with robosuite")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"env_name": "Door"}, "robosuite's Door; environments here: Lift, PickPlaceCan"),
        ({"type": 2}, "type 2"),
        ({"robots": ["Sawyer"]}, "Sawyer"),
        ({"robots": "Sawyer"}, "Sawyer"),
        ({"control_freq": 10}, "control_freq=10"),
        ({"type": 1, "kp": 300}, "kp=300"),
        ({"damping": 2}, "damping_ratio=2"),
        ({"output_max": [0.1, 0.1, 0.1, 0.5, 0.5, 0.5]}, "output_max"),
        ({"position_limits": [[0, 0, 0], [1, 1, 1]]}, "position_limits"),
        ({"controller_configs": {"type": "JOINT_POSITION"}}, "JOINT_POSITION"),
    ],
)
def test_what_the_environment_does_not_play_is_refused_by_name(change, named):
    with pytest.raises(UserError, match=named) as caught:
        settings_of(changed(**change), "ph.hdf5")
    assert "\n" not in str(caught.value) and "ph.hdf5" in str(caught.value)


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"env_name": "Lift"}'])
def test_other_text_is_refused(text):
    with pytest.raises(UserError, match="is not what robomimic writes"):
        settings_of(text)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "no.hdf5").write_text("no")
    with h5py.File(tmp_path / "bare.hdf5", "w") as file:
        file.create_group("data")
    for name, named in (("none.hdf5", "does not exist"), ("no.hdf5", "names no environment"), ("bare.hdf5", "names no environment")):
        with pytest.raises(UserError, match=named):
            env_of_file(tmp_path / name)
