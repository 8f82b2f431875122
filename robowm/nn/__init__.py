"""Network parts without an opinion about what they predict."""
