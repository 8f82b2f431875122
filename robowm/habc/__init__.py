"""Hierarchical advantage-weighted behaviour cloning: who earned an outcome, how good a step was, how much to imitate it."""
