"""Simulated tasks. Imports row 0 of robowm only; configs name what is here by import path."""
