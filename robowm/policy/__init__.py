"""Policies: lerobot's models behind one adapter, and the losses that clone, weigh and fine-tune them."""
