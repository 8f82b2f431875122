"""The scene that all tabletop tasks share: a table, a gantry gripper with two fingers, an external and a wrist camera.

The hand's frame sits at the pinch point between the finger pads; x, y and z are slides, yaw a hinge, and each joint follows a position
set-point. A task adds one free body called ``object`` and one mocap body called ``target``. Lengths in metres, angles in radians.
"""

from __future__ import annotations

import mujoco
import numpy as np

from robowm.types import MASK_CHANNELS

TIMESTEP = 0.01
FINGER_TRAVEL = 0.034  # of each finger, from 70 mm apart to 2 mm
FINGER_SQUEEZE = 0.037  # set-point of a closed finger: a little further than it can go, so that it presses
MAX_SIZE = 256  # pixels

HAND_JOINTS = ("hand_x", "hand_y", "hand_z", "hand_yaw")
FINGER_JOINTS = ("finger_left", "finger_right")

PARTS = {"gripper": ("hand", *FINGER_JOINTS), "object": ("object",), "target": ("target",)}  # bodies of what masks show

# Who touches whom: fingers (1) and fixtures (2) touch objects, fingers touch fixtures, nothing else touches.
OBJECT = 'contype="4" conaffinity="3"'
FIXTURE = 'contype="2" conaffinity="1"'
SEEN_ONLY = 'contype="0" conaffinity="0"'

_SCENE = """
<mujoco model="tabletop">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{timestep}" integrator="implicitfast"/>
  <size memory="1M"/>
  <visual>
    <quality shadowsize="0" offsamples="0" numslices="14" numstacks="8" numquads="1"/>
    <headlight ambient=".45 .45 .45" diffuse=".45 .45 .45" specular="0 0 0"/>
    <map znear=".02" zfar="8"/>
  </visual>
  <statistic extent="0.5" center="0 0 0"/>
  <default>
    <geom friction="1 .01 .0005" density="400"/>
    <default class="finger">
      <geom type="box" size=".008 .005 .030" pos="0 0 .018" rgba=".95 .80 .20 1" mass=".04" contype="1" conaffinity="2"
        friction="1.5 .02 .001"/>
    </default>
  </default>
  <worldbody>
    <light pos="-.3 -.4 .8" dir=".35 .45 -.8" directional="true" diffuse=".4 .4 .4" specular="0 0 0"/>
    <geom name="floor" type="plane" size="1 1 .1" contype="2" conaffinity="0" group="4"/>
    <geom name="table" type="box" size=".5 .5 .01" pos="0 0 -.01" rgba=".30 .31 .36 1" {seen_only}/>
    <camera name="external" pos="0 -.30 .40" xyaxes="1 0 0 0 .76 .65" fovy="35"/>
    <body name="hand" gravcomp="1">
      <joint name="hand_x" type="slide" axis="1 0 0"/>
      <joint name="hand_y" type="slide" axis="0 1 0"/>
      <joint name="hand_z" type="slide" axis="0 0 1"/>
      <joint name="hand_yaw" type="hinge" axis="0 0 1" armature=".001"/>
      <geom name="palm" type="box" size=".013 .046 .010" pos="0 0 .060" rgba=".80 .80 .82 1" mass=".3" {seen_only}/>
      <geom name="wrist" type="cylinder" size=".014 .03" pos="0 0 .10" rgba=".80 .80 .82 1" mass=".1" {seen_only}/>
      <camera name="wrist" pos=".055 0 .062" xyaxes="0 1 0 -.82 0 .57" fovy="80"/>
      <body name="finger_left" pos="0 .040 0" gravcomp="1">
        <joint name="finger_left" type="slide" axis="0 -1 0" range="0 {travel}"/>
        <geom class="finger"/>
      </body>
      <body name="finger_right" pos="0 -.040 0" gravcomp="1">
        <joint name="finger_right" type="slide" axis="0 1 0" range="0 {travel}"/>
        <geom class="finger"/>
      </body>
    </body>
    {bodies}
  </worldbody>
  <contact><exclude body1="finger_left" body2="finger_right"/></contact>
  <actuator>
    <position joint="hand_x" kp="500" dampratio="1" forcerange="-12 12"/>
    <position joint="hand_y" kp="500" dampratio="1" forcerange="-12 12"/>
    <position joint="hand_z" kp="500" dampratio="1" forcerange="-12 12"/>
    <position joint="hand_yaw" kp="1.5" dampratio="1"/>
    <position joint="finger_left" kp="150" dampratio="1"/>
    <position joint="finger_right" kp="150" dampratio="1"/>
  </actuator>
</mujoco>
"""


def build_model(bodies: str) -> mujoco.MjModel:
    """Compile the shared scene with a task's ``bodies`` (MJCF: a free body ``object``, a mocap body ``target``)."""
    xml = _SCENE.format(timestep=TIMESTEP, travel=FINGER_TRAVEL, seen_only=SEEN_ONLY, bodies=bodies)
    return mujoco.MjModel.from_xml_string(xml)


def geom_labels(model: mujoco.MjModel) -> np.ndarray:
    """Return int [ngeom]: 1 + the mask channel in which a geom shows, 0 for none."""
    labels = np.zeros(model.ngeom, int)
    for part, bodies in PARTS.items():
        labels[np.isin(model.geom_bodyid, [model.body(name).id for name in bodies])] = 1 + MASK_CHANNELS[part]
    return labels
