"""What all imports share: episodes are read one by one, appended, and the store is sealed; a cut-off import goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robowm.artefacts import claim
from robowm.data.store import EpisodeStore, StoreSpec
from robowm.errors import UserError, nearest
from robowm.progress import Progress
from robowm.types import Episode


def import_episodes(
    output_dir: str | Path,
    *,
    spec: StoreSpec,
    names: Sequence[str],
    read: Callable[[int], Episode],
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
) -> EpisodeStore:
    """Fill the store ``output_dir`` with ``read(i)`` for each of ``names`` and seal it.

    A finished import with the same ``config`` and ``inputs`` returns at once, another one is refused; an unfinished one goes on behind the
    last episode it holds. Errors name the episode.
    """
    output_dir = Path(output_dir)
    if not names:
        raise UserError(f"nothing to import into {output_dir}: the source has no episodes")
    output_dir.mkdir(parents=True, exist_ok=True)
    if claim(output_dir, kind="store", inputs=inputs, config=config) is not None:
        return EpisodeStore.open(output_dir)
    store = EpisodeStore.open_or_create(output_dir, spec)
    with Progress(output_dir, len(names), "import", done=len(store)) as progress:
        for i in range(len(store), len(names)):
            try:
                store.append(read(i))
            except UserError as error:
                raise UserError(f"{names[i]}: {error}") from error
            progress.advance()
    store.seal(inputs=inputs, config=config)
    return store


def camera_names(cameras: Mapping[str, str] | Sequence[str] | None, found: Sequence[str], where: str) -> dict[str, str]:
    """Return {camera in the store: camera in the source}; a plain list keeps the names, None takes all that the source has."""
    wanted = {c: c for c in found} if cameras is None else dict(cameras) if isinstance(cameras, Mapping) else {c: c for c in cameras}
    for camera in wanted.values():
        if camera not in found:
            raise UserError(f"{where} has no camera {camera!r}; {nearest(camera, found)}")
    return wanted


def to_frames(images: np.ndarray, key: str, size: Sequence[int] | None) -> np.ndarray:
    """Return ``images`` [T, h, w, 3] as uint8, scaled to ``size`` (height, width) by area averaging if given.

    Floats are taken for uint8 if they hold whole numbers up to 255; other floats are refused, since 0..1 and 0..255 cannot be told apart.
    """
    if images.ndim != 4 or images.shape[-1] != 3:
        raise UserError(f"{key} has shape {images.shape}; frames are [T, height, width, 3] (RGB)")
    if images.dtype != np.uint8:
        if images.size and (images.min() < 0 or images.max() > 255 or (images != np.round(images)).any() or images.max() <= 1):
            raise UserError(f"{key} is {images.dtype} from {images.min()} to {images.max()}; frames must be whole numbers from 0 to 255")
        images = images.astype(np.uint8)
    if size is None or tuple(images.shape[1:3]) == tuple(size):
        return images
    import torch
    from torch.nn.functional import interpolate

    scaled = interpolate(torch.from_numpy(images).permute(0, 3, 1, 2).float(), size=tuple(size), mode="area")
    return scaled.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


def rescale_gripper(rows: np.ndarray, names: Sequence[str], gripper: Sequence[float] | None, *, back: bool = False) -> np.ndarray:
    """Map the dimensions of ``rows`` [T, D] named gripper from (open, closed) = ``gripper`` to (0, 1), or ``back``. None: leave them."""
    columns = [i for i, name in enumerate(names) if "gripper" in name]
    if gripper is None or not columns:
        return rows
    opened, closed = gripper
    if opened == closed:
        raise UserError(f"gripper is {list(gripper)}; its open and closed values must differ")
    rows = rows.copy()
    rows[:, columns] = rows[:, columns] * (closed - opened) + opened if back else (rows[:, columns] - opened) / (closed - opened)
    return rows


def controller_segments(controller: np.ndarray) -> np.ndarray:
    """Return int32 [T]: the number of changes of ``controller`` so far."""
    return np.concatenate([[0], np.cumsum(np.diff(controller) != 0)]).astype(np.int32)[: len(controller)]
