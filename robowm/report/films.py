"""Films for the page: an episode's cameras side by side, and predictions under the truth."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robowm.errors import UserError
from robowm.evaluation.video import side_by_side, write_video
from robowm.report.strips import chunk_starts
from robowm.report.study import Strip

if TYPE_CHECKING:
    from robowm.types import Episode

BAR = 6  # pixels, height of the bar that changes shade with every predicted chunk
_SHADES = np.array([(0, 114, 178), (125, 133, 142)], np.uint8)


def encode(picture: np.ndarray, fps: float) -> bytes:
    """Return uint8 RGB ``picture`` [T, h, w, 3] as an H.264 mp4."""
    if picture.ndim != 4 or picture.shape[-1] != 3 or picture.dtype != np.uint8 or len(picture) == 0:
        raise UserError(f"a film needs uint8 frames [T, h, w, 3] with T >= 1, found {picture.dtype} {list(picture.shape)}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        write_video(path, {"picture": picture}, fps)
        return path.read_bytes()


def strip_film(strip: Strip) -> np.ndarray:
    """Return truth (above) and prediction (below) of every camera, with a bar in between that changes shade with every chunk."""
    truth, predicted = side_by_side(strip.truth), side_by_side({camera: strip.predicted[camera] for camera in strip.truth})
    length = min(len(truth), len(predicted))
    chunk = np.searchsorted(chunk_starts(length - 1, strip.chunk), np.arange(length), side="right")  # [T], 0 = the real start
    bar = np.broadcast_to(_SHADES[chunk % 2][:, None, None], (length, BAR, truth.shape[2], 3))
    return np.concatenate([truth[:length], bar, predicted[:length]], axis=1)


def episode_film(store_path: str | Path, index: int) -> tuple[bytes, str]:
    """Return episode ``index`` of an EpisodeStore as an mp4, and one line that says what it shows."""
    from robowm.data.store import EpisodeStore

    store = EpisodeStore.open(store_path)
    if not 0 <= index < len(store):
        held = f"episodes 0..{len(store) - 1}" if len(store) else "no episode"
        raise UserError(f"{store_path} holds {held}, found episode={index}")
    episode = store.episode(index)
    if not episode.frames:
        raise UserError(f"episode {index} of {store_path} has no camera; a store of states alone cannot be shown")
    return encode(side_by_side(episode.frames), episode.fps), f"episode {index}: {describe(episode)}"


def describe(episode: Episode) -> str:
    """Return ``pick up the block, rollout, seed 10012, 60 steps, success (simulator)``."""
    verdict = {1.0: "success", 0.0: "failure"}.get(float(episode.success), "not judged")
    judge = f" ({episode.judged_by})" if episode.judged_by else ""
    return f"{episode.task}, {episode.source.kind}, seed {episode.source.seed}, {len(episode)} steps, {verdict}{judge}"
