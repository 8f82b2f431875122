"""Episodes that happen in the world model: real starts, a policy, a judge, and what is worth keeping."""
