"""Guided recovery (ReGuide): a latent dynamics model steers a diffusion policy back to demonstrated states while it acts."""
