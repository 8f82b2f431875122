"""Diffusion as pure functions of tensors: paths and targets, noise levels as data, one sampler."""
