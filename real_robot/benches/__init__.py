"""What collection on a robot is measured by. Each part is a stage with a folder of its own, skipped once it is done."""
