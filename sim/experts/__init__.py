"""Scripted policies: one expert script per task file, and policies that serve as controls or as action sets."""

from sim.experts.controls import AsDelta, NeverMoves, OpenLoop, Perturbed
from sim.experts.expert import ScriptedExpert
from sim.experts.hesitant import Hesitant

__all__ = ["AsDelta", "Hesitant", "NeverMoves", "OpenLoop", "Perturbed", "ScriptedExpert"]
