"""Action-conditioned video world model: build, train, predict, and act inside it."""
