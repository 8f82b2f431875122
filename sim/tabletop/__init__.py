"""Small MuJoCo tasks on a table."""

from sim.tabletop.env import TabletopEnv

__all__ = ["TabletopEnv"]
