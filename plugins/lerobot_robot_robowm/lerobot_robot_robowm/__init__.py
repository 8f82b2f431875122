"""lerobot imports every installed package whose name begins with lerobot_robot_; this one registers robowm's simulated robot."""

from real_robot.sim_robot import *  # noqa: F403
