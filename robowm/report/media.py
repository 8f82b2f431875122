"""Films for the page: failures (and a success) of every evaluated arm, imagined successes put to the test, episodes of every store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from pathlib import Path

from robowm.data.store import EpisodeStore
from robowm.report.arms import is_published
from robowm.report.films import episode_film
from robowm.report.folders import Artefact, of_kind
from robowm.report.study import Video, arm_order

FAILURES, SUCCESSES = 4, 1  # of an arm on a task
EACH_VERDICT = 3  # imagined successes that failed in the simulator, and as many that did not
PER_STORE = 2
TESTED, DATASET = "Imagined beside simulated", "Dataset"  # how groups of films begin


def arm_videos(artefacts: Sequence[Artefact]) -> list[Video]:
    """Return some of the failures and successes that the evaluations filmed, from all training seeds in turn."""
    groups: dict[tuple[str, str], list[Artefact]] = {}
    for artefact in filter(is_published, of_kind(artefacts, "evaluation")):
        groups.setdefault((artefact.record["config"]["task"], artefact.record["config"]["arm"]), []).append(artefact)
    order = arm_order(arm for _, arm in groups)
    films = []
    for (task, arm), members in sorted(groups.items(), key=lambda item: (item[0][0], order.index(item[0][1]))):
        for verdict, wanted in (("failure", FAILURES), ("success", SUCCESSES)):
            for artefact, path in _in_turn(members, f"{verdict}_*.mp4")[:wanted]:
                title = f"{verdict}, start {path.stem.partition('_')[2]}, training seed {artefact.record['config']['train_seed']}"
                films.append(Video(f"{arm} on {_short(task)}", title, path.read_bytes()))
    return films


def imagined_videos(artefacts: Sequence[Artefact]) -> list[Video]:
    """Return imagined successes beside what the simulator showed under the same actions."""
    groups: dict[str, list[Artefact]] = {}
    for artefact in of_kind(artefacts, "imagined_vs_real"):
        groups.setdefault(artefact.record["config"]["task"], []).append(artefact)
    films = []
    for task, members in groups.items():
        for verdict in ("false", "true"):
            for _, path in _in_turn(members, f"{verdict}_success_*.mp4")[:EACH_VERDICT]:
                title = f"{verdict} success, imagined episode {int(path.stem.rpartition('_')[2])}"
                films.append(Video(f"{TESTED} on {_short(task)}", title, path.read_bytes()))
    return films


def store_videos(artefacts: Sequence[Artefact]) -> list[Video]:
    """Return evenly spread episodes of every store; of stores that differ in the training seed alone, the first one's.

    A unit that was kept without its episodes (see units.py) has none to show, nor has a store of states alone.
    """
    groups: dict[tuple[str, str], Artefact] = {}
    for artefact in of_kind(artefacts, "store"):
        if not (artefact.folder / "zarr.json").is_file() or not EpisodeStore.open(artefact.folder).spec.cameras:
            continue
        groups.setdefault((artefact.record["config"].get("task", ""), artefact.folder.name), artefact)
    films = []
    for artefact in groups.values():
        count = artefact.record["episodes"]
        for index in sorted({i * count // PER_STORE for i in range(PER_STORE)} if count else ()):
            mp4, title = episode_film(artefact.folder, index)
            films.append(Video(f"{DATASET} {artefact.name} ({count:,} episodes)", title, mp4))
    return films


def _in_turn(artefacts: Iterable[Artefact], pattern: str) -> list[tuple[Artefact, Path]]:
    """Return the films of all ``artefacts``, the first of each, then the second of each, ..."""
    films = [[(artefact, path) for path in sorted((artefact.folder / "videos").glob(pattern))] for artefact in artefacts]
    return [film for film in chain.from_iterable(zip_longest(*films)) if film is not None]


def _short(task: str) -> str:
    return task.rpartition("/")[2]
