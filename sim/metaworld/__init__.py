"""The tasks of Meta-World (extra ``metaworld``), which is imported when the first environment or expert is built."""

from sim.metaworld.actors import MetaworldExpert, MetaworldOpenLoop
from sim.metaworld.env import MetaworldEnv

__all__ = ["MetaworldEnv", "MetaworldExpert", "MetaworldOpenLoop"]
