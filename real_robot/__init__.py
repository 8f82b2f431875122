"""Entry points for real robots."""
