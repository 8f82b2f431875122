"""``robowm report``: a results file and a page from a run's folder, a page from a results file, or one episode of a store as a film."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robowm.artefacts import write_text
from robowm.errors import UserError
from robowm.report import arms as arms_of
from robowm.report import bench, classifier, fidelity, figures, folders, guidance, habc, media, page
from robowm.report.films import episode_film
from robowm.report.gather import RESULTS, gather, write_results
from robowm.report.schema import read_results
from robowm.report.study import Study
from robowm.report.words import format_table

FILES = {"results": RESULTS, "page": "report.html", "picture": "report.png"}


def run(
    *,
    output_dir: Path | str,
    flywheel: Path | str | None = None,
    results: Path | str | None = None,
    store: Path | str | None = None,
    episode: int = 0,
    study: str | None = None,
    command: str | None = None,
    pairs: Sequence[Mapping[str, Any]] = (),
    arms: Sequence[str] = (),
    notes: Sequence[str] = (),
    max_bytes: int = page.PAGE_BYTES,
) -> dict[str, Any]:
    """Report on exactly one of ``flywheel`` (a run's folder), ``results`` (a results file) and ``store`` (with ``episode``).

    Returns the paths written: results, page and picture, or film. ``pairs`` and ``arms`` are those
    that the experiment's config wrote down before the run (default: what the flywheel's own report was given); an arm that is missing, or
    that ran other starts, is refused.
    """
    given = [name for name, value in (("flywheel", flywheel), ("results", results), ("store", store)) if value is not None]
    if len(given) != 1:
        raise UserError(
            f"give exactly one of flywheel=<folder>, results=<file.json> and store=<folder>, found {', '.join(given) or 'none'}"
        )
    output_dir = Path(output_dir)
    if store is not None:
        return film(store, episode, output_dir)
    if results is not None:
        return publish(Study(read_results(results)), output_dir, max_bytes)
    kept = folders.recorded_report(flywheel)
    written = flywheel_study(
        flywheel,
        study=study or kept.get("study"),
        command=command or kept.get("command"),
        pairs=pairs or kept.get("pairs", ()),
        arms=arms or kept.get("arms", ()),
        notes=notes or kept.get("notes", ()),
    )
    return publish(written, output_dir, max_bytes)


def flywheel_study(
    folder: Path | str,
    *,
    study: str | None = None,
    command: str | None = None,
    pairs: Sequence[Mapping[str, Any]] = (),
    arms: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Study:
    """Gather everything finished under a run's folder."""
    folder = Path(folder)
    artefacts, stages, kept = folders.find_artefacts(folder), folders.stages_of(folder), folders.recorded_command(folder)
    results = gather(
        folder,
        study=study or folder.resolve().name,
        command=command or " ".join(["robowm", kept["verb"], *kept["overrides"]] if kept else ["robowm", "report", f"flywheel={folder}"]),
        pairs=pairs,
        wanted_arms=arms,
        notes=notes,
        artefacts=artefacts,
        stages=stages,
    )
    return Study(
        results,
        curves=[curve for part in bench.split(artefacts)[1:] for curve in fidelity.curves(fidelity.read_scores(part))],
        strips=fidelity.strips(artefacts),
        videos=[*media.arm_videos(artefacts), *media.imagined_videos(artefacts), *media.store_videos(artefacts)],
        reliability=classifier.reliabilities(artefacts),
        viability=habc.reliabilities(artefacts),
        recovering=habc.recovering(arms_of.evaluation_lines(artefacts)),
        timelines=guidance.timelines(artefacts),
        guided=guidance.guided_episodes(artefacts),
        stages=stages,
        provenance=folders.provenance_of(artefacts),
        config=folders.configurations(artefacts),
    )


def publish(study: Study, output_dir: Path, max_bytes: int = page.PAGE_BYTES) -> dict[str, Any]:
    """Write results file, page and picture, and print the arms."""
    output_dir.mkdir(parents=True, exist_ok=True)
    paths = {name: output_dir / file for name, file in FILES.items()}
    write_results(paths["results"], study.results)
    write_text(paths["page"], page.build(study, size=max_bytes))
    picture = figures.readme_figure(study.results, study.strips)
    if picture is None:
        del paths["picture"]
    else:
        _write_bytes(paths["picture"], picture)
    print(format_table(study.results))
    print(f"page: {paths['page']}")
    return {name: str(path) for name, path in paths.items()}


def film(store: Path | str, episode: int, output_dir: Path) -> dict[str, Any]:
    """Write one episode of a store as ``episode_<n>.mp4``."""
    mp4, title = episode_film(store, episode)
    path = output_dir / f"{Path(store).resolve().name}_{episode}.mp4"
    _write_bytes(path, mp4)
    print(f"{path}: {title}")
    return {"film": str(path)}


def _write_bytes(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}; free some space or choose another output_dir") from error
