"""Thorough comparisons: one run() per suite, named by the suite's config."""
