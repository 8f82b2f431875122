"""Episodes as videos that a browser plays: MP4, H.264, 4:2:0."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np

from robowm.errors import UserError
from robowm.types import pictures

MIN_SIDE = 128  # pixels; smaller pictures are enlarged by a whole factor, pixels kept sharp
GAP = 4  # dark pixels between cameras, after enlarging
QUALITY = 18  # x264's constant rate factor; small frames stay readable and small


def side_by_side(frames: Mapping[str, np.ndarray], min_side: int = MIN_SIDE) -> np.ndarray:
    """Join cameras' uint8 [K, h, w, 3] left to right, each enlarged (nearest neighbour) to at least ``min_side``, with even sides.

    Masks are left out.
    """
    if not (names := pictures(frames)):
        raise UserError("a video needs at least one camera, found none")
    enlarged = []
    for picture in (frames[name] for name in names):
        factor = max(1, -(-min_side // min(picture.shape[1:3])))
        enlarged.append(picture.repeat(factor, 1).repeat(factor, 2))
    height = max(picture.shape[1] for picture in enlarged)
    columns = []
    for i, picture in enumerate(enlarged):
        low = (height - picture.shape[1]) // 2
        left = GAP if i else 0
        columns.append(np.pad(picture, ((0, 0), (low, height - picture.shape[1] - low), (left, 0), (0, 0))))
    joined = np.concatenate(columns, 2)
    return np.pad(joined, ((0, 0), (0, joined.shape[1] % 2), (0, joined.shape[2] % 2), (0, 0)))  # 4:2:0 needs even sides


def write_video(path: Path | str, frames: Mapping[str, np.ndarray], fps: float) -> None:
    """Write cameras' uint8 [K, h, w, 3] side by side to ``path`` (.mp4); the file appears complete or not at all."""
    import av

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = side_by_side(frames)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.mp4")
    try:
        with av.open(str(temporary), "w", options={"movflags": "faststart"}) as container:
            stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
            stream.height, stream.width, stream.pix_fmt = picture.shape[1], picture.shape[2], "yuv420p"
            stream.options = {"crf": str(QUALITY), "preset": "veryfast"}
            stream.codec_context.thread_count = 1
            for row in picture:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(row), format="rgb24")))
            container.mux(stream.encode())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; free some space or choose another output_dir") from error
    finally:
        temporary.unlink(missing_ok=True)
