"""Films for the page: failures (and a few successes) of every evaluated arm, and episodes of every recorded or imagined store."""

from __future__ import annotations

from collections.abc import Sequence

from robowm.report.arms import is_published
from robowm.report.films import episode_film
from robowm.report.folders import Artefact, of_kind
from robowm.report.study import Video, arm_order

PER_ARM = 4  # failures
PER_STORE = 2


def arm_videos(artefacts: Sequence[Artefact], per_arm: int = PER_ARM) -> list[Video]:
    """Return the failures that the evaluations filmed, and one success of each arm."""
    evaluations = [artefact for artefact in of_kind(artefacts, "evaluation") if is_published(artefact)]
    order = arm_order(artefact.record["config"]["arm"] for artefact in evaluations)
    films = []
    for artefact in sorted(evaluations, key=lambda a: (a.record["config"]["task"], order.index(a.record["config"]["arm"]))):
        config = artefact.record["config"]
        for verdict, wanted in (("failure", per_arm), ("success", 1)):
            for path in sorted((artefact.folder / "videos").glob(f"{verdict}_*.mp4"))[:wanted]:
                seed = path.stem.partition("_")[2]
                title = f"{verdict}, start {seed}, training seed {config['train_seed']}"
                films.append(Video(f"{config['arm']} on {config['task'].rpartition('/')[2]}", title, path.read_bytes()))
    return films


def imagined_videos(artefacts: Sequence[Artefact]) -> list[Video]:
    """Return imagined successes beside what the simulator showed under the same actions."""
    films = []
    for artefact in of_kind(artefacts, "imagined_vs_real"):
        for path in sorted((artefact.folder / "videos").glob("*_success_*.mp4")):
            verdict, _, index = path.stem.partition("_success_")
            group = f"Imagined successes on {artefact.record['config']['task'].rpartition('/')[2]}: imagined beside simulated"
            films.append(Video(group, f"{verdict} success, episode {int(index)}", path.read_bytes()))
    return films


def store_videos(artefacts: Sequence[Artefact], per_store: int = PER_STORE) -> list[Video]:
    """Return the first episodes of every store, evenly spread over it."""
    films = []
    for artefact in of_kind(artefacts, "store"):
        count = artefact.record["episodes"]
        for index in sorted({i * count // per_store for i in range(per_store)} if count else ()):
            mp4, title = episode_film(artefact.folder, index)
            films.append(Video(f"Dataset {artefact.name} ({count:,} episodes)", title, mp4))
    return films
