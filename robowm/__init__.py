"""robowm: make a robot policy better with a world model, guided recovery and per-step credit."""

__version__ = "0.1.0"
