"""Small MuJoCo tasks on a table."""

from sim.tabletop.env import TabletopEnv
from sim.tabletop.regimes import Regimes

__all__ = ["Regimes", "TabletopEnv"]
