"""Measures: pure functions of arrays."""
