"""Recorded episodes: storage, clips of them, normalisation, checks, and the formats of others."""
