"""A store with its weights for ``lerobot-train``: the data set, and a parquet file that lerobot's own sample weighting reads.

    python -m robowm.data.lerobot_weights data/rollouts habc data/for_lerobot 15

    lerobot-train --dataset.repo_id=local/dataset --dataset.root=data/for_lerobot --sample_weighting.type=rabc
        --sample_weighting.kappa=1e9 --sample_weighting.progress_path=data/for_lerobot/weights.parquet
        --policy.type=robowm_diffusion --policy.discover_packages_path=robowm.policy.lerobot_small --policy.push_to_hub=false

N samples (one a step of the store), W the steps of a policy's ``chunk_size``.

lerobot 0.6.1 knows no weights as such: it reads a "progress" of each frame and weighs a sample by how much that grows over a chunk (RA-BC,
arXiv 2509.25358, eq. 8 and 9):

    r = progress[min(t + W, last)] - progress[t],    w = clip((r - (mu - 2 sigma)) / (4 sigma + epsilon), 0, 1)   for 0 <= r <= kappa

with mu and sigma the mean and deviation of r over the file. Every wanted w in [0, 1] can be written so, but for the last frame of an
episode, whose r is 0 and whose action was never recorded: take r = w, add up backwards, and append an episode that no data set has so that
mu becomes 1/2 and sigma 1/4. Weights come out as they were wanted, over the largest of them; lerobot divides by their mean anyway. The file
also holds "weight" as it was. kappa only has to be above 1.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robowm.data.clips import first_rows, window
from robowm.data.lerobot import export_lerobot
from robowm.data.sidecar import read_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError

FILE = "weights.parquet"
MEAN, DEVIATION = 0.5, 0.25  # with these w = r


def sample_weights(weight: np.ndarray, lengths: np.ndarray, chunk_size: int) -> np.ndarray:
    """Return f64 [N]: the mean weight of the steps that a sample's chunk holds, from ``weight`` [N] of steps and ``lengths`` [E]."""
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    steps = np.arange(len(weight)) - np.repeat(first_rows(lengths), lengths)
    rows, valid = window(np.asarray(lengths), episodes, steps, np.arange(chunk_size))
    taken = weight[rows + first_rows(lengths)[episodes][:, None]].astype(float)
    return (taken * valid).sum(1) / valid.sum(1)


def progress_of(wanted: np.ndarray, chunk_size: int) -> np.ndarray:
    """Return progress f64 [T + 1] of an episode's frames whose growth over a chunk is ``wanted`` f64 [T]; the last frame grows by 0."""
    last = len(wanted)
    progress = np.zeros(last + 1)
    for t in range(last - 1, -1, -1):
        progress[t] = progress[min(t + chunk_size, last)] - wanted[t]
    return progress


def ballast(grown: np.ndarray) -> np.ndarray:
    """Return further growths f64 [K] with which the mean of all is 1/2 and their deviation 1/4.

    With d = growth - 1/2 the added e must sum to -sum d, and their squares to (N + K) / 16 - sum d^2: half of them a step above and half a
    step below the mean that this asks for. K doubles until there is room.
    """
    total, squares = (grown - MEAN).sum(), ((grown - MEAN) ** 2).sum()
    count = 2
    while (missing := DEVIATION**2 * (len(grown) + count) - squares - total**2 / count) < 0:
        count *= 2
    return MEAN - total / count + np.sqrt(missing / count) * np.where(np.arange(count) % 2, 1.0, -1.0)


def weights_table(weight: np.ndarray, lengths: np.ndarray, chunk_size: int) -> dict[str, np.ndarray]:
    """Return the columns of the parquet file, a row for each frame of the data set and behind them those of one further episode.

    ``weight`` f32 [N] of the steps of episodes of ``lengths`` int64 [E]. Raises UserError for weights that are not finite, negative, or 0
    everywhere.
    """
    if not (np.isfinite(weight) & (weight >= 0)).all() or not weight.max(initial=0) > 0:
        raise UserError("weights must be finite, at least 0, and not all 0; weigh the store again")
    samples = sample_weights(weight, lengths, chunk_size)
    parts = np.split(samples / samples.max(), np.cumsum(lengths)[:-1])
    grown = np.concatenate([np.append(part, 0.0) for part in parts])
    added = ballast(np.append(grown, 0.0))
    parts = [*parts, added]
    frames = [len(part) + 1 for part in parts]
    return {
        "index": np.arange(sum(frames)),
        "episode_index": np.repeat(np.arange(len(parts)), frames),
        "frame_index": np.concatenate([np.arange(count) for count in frames]),
        "progress_sparse": np.concatenate([progress_of(part, chunk_size) for part in parts]),
        "weight": np.concatenate([*(np.append(part * samples.max(), 0.0) for part in parts[:-1]), np.zeros(len(added) + 1)]),
    }


def export_weighted(store: EpisodeStore, name: str, root: Path | str, chunk_size: int, *, use_videos: bool = True) -> Path:
    """Write ``store`` as a LeRobotDataset v3 in the new folder ``root``, with sidecar ``name`` as its weights for policies whose
    ``chunk_size`` that is, and return the path of the parquet file."""
    import pandas

    if chunk_size < 1:
        raise UserError(f"chunk_size={chunk_size}; it must be that of the policy, at least 1")
    if not store.lengths.all():
        raise UserError(f"{store.path} holds episodes without steps, which lerobot cannot; leave them out")
    arrays = read_sidecar(store, name)
    if "weight" not in arrays:
        raise UserError(f"sidecar {name!r} of {store.path} has no 'weight'; it has {', '.join(arrays)}")
    table = weights_table(arrays["weight"], store.lengths, chunk_size)
    export_lerobot(store, root, use_videos=use_videos)
    path = Path(root) / FILE
    pandas.DataFrame(table).to_parquet(path, index=False)
    return path


def main(arguments: Sequence[str]) -> int:
    """Export; see the module's docstring. Returns the exit code."""
    if len(arguments) != 4 or not arguments[3].isdigit():
        print("usage: python -m robowm.data.lerobot_weights STORE SIDECAR NEW_FOLDER CHUNK_SIZE", file=sys.stderr)
        return 2
    try:
        path = export_weighted(EpisodeStore.open(arguments[0]), arguments[1], arguments[2], int(arguments[3]))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
