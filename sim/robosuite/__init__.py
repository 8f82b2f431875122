"""robomimic's benchmark tasks in robosuite (extra ``robosuite``), which is imported when the first environment is built."""

from sim.robosuite.actors import RobosuiteExpert, RobosuiteOpenLoop
from sim.robosuite.env import RobosuiteEnv
from sim.robosuite.env_args import env_of_file

__all__ = ["RobosuiteEnv", "RobosuiteExpert", "RobosuiteOpenLoop", "env_of_file"]
