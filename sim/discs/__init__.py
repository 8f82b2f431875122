"""Two discs on a table whose friction no camera sees: the smallest world in which a video model has to sample, not only to regress."""

from sim.discs.actors import Chase, Wander
from sim.discs.env import DiscsEnv
from sim.discs.regimes import Regimes

__all__ = ["Chase", "DiscsEnv", "Regimes", "Wander"]
