"""Reinforcement learning of the world model on rollouts of its own."""
