"""robomimic's benchmark tasks in robosuite (extra ``robosuite``), which is imported when the first environment is built."""

from sim.robosuite.env import RobosuiteEnv

__all__ = ["RobosuiteEnv"]
