"""A lerobot plug-in without hardware: the tabletop as a Robot, a scripted person and a keyboard as Teleoperators.

lerobot's own commands find it with ``--robot.discover_packages_path=real_robot.sim_robot``, or with plugins/lerobot_robot_robowm installed.
"""

from real_robot.sim_robot.cameras import SimCamera, SimCameraConfig
from real_robot.sim_robot.expert import RobowmExpert, RobowmExpertConfig
from real_robot.sim_robot.faults import Faults
from real_robot.sim_robot.keyboard import RobowmKeyboard, RobowmKeyboardConfig
from real_robot.sim_robot.robot import RobowmSimRobot, RobowmSimRobotConfig

__all__ = [
    "Faults",
    "RobowmExpert",
    "RobowmExpertConfig",
    "RobowmKeyboard",
    "RobowmKeyboardConfig",
    "RobowmSimRobot",
    "RobowmSimRobotConfig",
    "SimCamera",
    "SimCameraConfig",
]
