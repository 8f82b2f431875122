"""Rewards: what a clip is worth, per step, with its raw terms."""
