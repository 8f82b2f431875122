"""Guided recovery (ReGuide): a latent dynamics model steers a policy that denoises its plan back to demonstrated states while it acts."""
