"""A run() to drive the command line with."""

import json
import os
from pathlib import Path

from robowm.errors import UserError


class Part:
    def __init__(self, width, path=None):
        if width < 0:
            raise UserError(f"width must be positive, found {width}")
        if width == 13:
            raise RuntimeError("a fault of ours")
        self.width, self.path, self.closed = width, path, False

    def close(self):
        self.closed = True


LAST = {}


def run(*, part, model, steps, seed, output_dir, items=(), optional=None, stores=()):
    LAST.update(part=part, model=model, steps=steps, items=items, output_dir=output_dir, optional=optional)
    if seed == 7:
        raise UserError("seed 7 brings bad luck; take another")
    if seed == 8:
        raise ValueError("a fault of ours")
    if seed == 9:
        raise OSError(28, "No space left on device", "some/file")
    if seed == 10:
        raise RuntimeError("invalid value for environment variable MUJOCO_GL: foo")  # as mujoco's import does
    (Path(output_dir) / "result.json").write_text(json.dumps({"seed": seed, "steps": steps, "pid": os.getpid()}))
    row = {"task": "fake/task", "arm": "base", "value": 0.41666, "low": 0.25, "high": 0.5, "n": 12}
    return {"rows": [{**row, "metric": metric} for metric in ("success", "psnr@mean", "psnr@60")]}
