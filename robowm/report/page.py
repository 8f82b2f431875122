"""One self-contained HTML page from a Study: what improved, the arms, the world model, films, timings and where it all came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robowm.report import figures, guidance, habc, html, models, words
from robowm.report.arms import SOLVED, STEPS
from robowm.report.films import encode, strip_film
from robowm.report.html import Budget
from robowm.report.media import DATASET, TESTED
from robowm.report.models import pairs_table
from robowm.report.schema import FIDELITY, SHARES
from robowm.report.strips import strip_rows
from robowm.report.study import (
    Curve,
    Stage,
    Study,
    Video,
    action_set_label,
    arm_order,
    curves_from_rows,
    pairs_of,
    rows_of,
    tasks,
)
from robowm.report.style import escape, to_svg
from robowm.report.words import interval, number

PAGE_BYTES = 12_000_000
MOST_EPISODES = 6  # of demonstrations and of guided episodes in the section on guidance
MOST_STRIPS = 2  # per model, task and action set


def build(study: Study, *, size: int = PAGE_BYTES) -> str:
    """Return the page as HTML of about ``size`` bytes at most (base64 included); what did not fit is named at its end."""
    budget = Budget(size * 3 // 4)  # base64 takes four bytes for three
    results = study.results
    sections = [
        ("Arms", _arms(results)),
        ("World model", _world_model(study, budget)),
        ("Following actions", models.action_table(results)),
        ("Long rolls", models.long_roll_table(results)),
        ("Success classifier", _classifier(study)),
        ("Critics and weights", _critics(study)),
        ("Recoveries", _recoveries(study)),
        ("Guidance", _guidance(study, budget)),
        ("Films", _films(study.videos, budget)),
        ("Other measurements", _other(results)),
        ("Time", _time(study)),
        ("Notes", _notes(results, budget)),
        ("Provenance", _provenance(study)),
    ]
    return html.page(f"robowm: {results['study']}", sections, _head(results))


def _head(results: Mapping[str, Any]) -> str:
    machine = results["machine"]
    where = f"{machine['cpus']} CPU cores" + (f", {machine['gpu']}" if machine["gpu"] else ", no GPU")
    lines = "".join(f"<p>{_together(escape(line))}</p>" for line in words.headline(results))
    starts = " to ".join(f"{seed:,}" for seed in results["eval_seeds"]) or "as recorded"
    seeds = ", ".join(map(str, results["train_seeds"])) or "none"
    return (
        f"<h1>robowm report: {escape(results['study'])}</h1>"
        f'<p class="soft">{escape(results["date"])} · commit {escape(results["commit"])} · {escape(where)} · '
        f"{_duration(results['seconds']) + ' · ' if results['seconds'] else ''}training seeds {seeds} · evaluation starts {starts}</p>"
        f'<div class="lead">{lines}</div>'
    )


def _together(text: str) -> str:
    """Keep ``n = 500`` and ``31.2 %`` on one line."""
    return text.replace("n = ", "n&nbsp;=&nbsp;").replace(" %", "&nbsp;%")


# ---------------------------------------------------------------------- arms


def _arms(results: Mapping[str, Any]) -> str:
    body = "".join(_arms_of(results, task) for task in tasks(results))
    if body:
        over = "training seeds and starts, each start with all its training seeds (crossed bootstrap)"
        body = (
            "<p>Every arm starts from the same states, each once, in the simulator. Lines and brackets are 95 % intervals over "
            f"{over if len(results['train_seeds']) > 1 else 'starts'}. "
            f"A paired difference is sure (a filled dot) where its interval leaves zero out, p is at most {words.LEVEL:g} and "
            f"{words.ENOUGH} starts or more were compared.</p>\n" + body
        )
    return body


def _arms_of(results: Mapping[str, Any], task: str) -> str:
    found = {(row["arm"], row["metric"]): row for row in rows_of(results, task=task)}
    arms = arm_order(arm for arm, metric in found if metric == "success")
    panels = html.figure(to_svg(figures.arms_figure(results, task), f"Success of each arm on {task}"), "Success, with 95 % intervals")
    pairs = pairs_of(results, task=task, metric="success")
    if pairs:
        panels += html.figure(to_svg(figures.pairs_figure(results, task), f"Paired differences on {task}"), "Paired differences")

    def share(arm: str, metric: str) -> str:
        return number(found[arm, metric]["value"], metric) if (arm, metric) in found else ""

    rows = []
    for arm in arms:
        row = found[arm, "success"]
        rows.append(
            [arm, share(arm, "success"), interval(row), share(arm, "success_at_end"), share(arm, "success_at_reset"), f"{row['n']:,}"]
        )
    body = f'<h3>{escape(task)}</h3>\n<div class="grid two above">{panels}</div>\n'
    body += html.table(["arm", "success %", "95 %", "at end %", "at reset %", "n"], rows)
    if pairs:
        body += pairs_table(pairs)
    others = [pair for pair in pairs_of(results, task=task) if pair["metric"] in (*SHARES, STEPS, SOLVED) and pair["metric"] != "success"]
    return body + (pairs_table(others) if others else "")


# ---------------------------------------------------------------------- world model


def _world_model(study: Study, budget: Budget) -> str:
    results = study.results
    names = list(dict.fromkeys(row["task"] for row in results["rows"] if row["metric"].partition("/")[0] in FIDELITY))
    arms = list(dict.fromkeys(row["arm"] for row in results["rows"]))
    curves = sorted(study.curves or curves_from_rows(results), key=lambda curve: arms.index(curve.arm))
    body = ""
    for task in names:
        body += f"<h3>{escape(action_set_label(task))}</h3>\n" + models.fidelity_table(results, task)
        body += _curves([curve for curve in curves if curve.task == task and models.BEHIND not in curve.arm])
        body += models.comparisons(results, task) + models.regime_table(results, task) + _strips(study, task, budget)
    if body:
        body = (
            "<p>Free-running from one real frame on held-out episodes; no true frame is fed in again. The mean is over all predicted "
            "frames. Expert actions point at the object, so they leak where it is, as do perturbed ones; open-loop do not.</p>\n" + body
        )
    return body


def _curves(curves: Sequence[Curve]) -> str:
    panels = ""
    for metric in FIDELITY:
        for camera in dict.fromkeys(curve.camera for curve in curves):
            chosen = [curve for curve in curves if (curve.metric, curve.camera) == (metric, camera)]
            if chosen:
                drawn = figures.curve_figure(chosen, metric, camera)
                panels += html.figure(to_svg(drawn, f"{metric} of the {camera} camera over the horizon"))
    return f'<div class="grid">{panels}</div>\n' if panels else ""


def _strips(study: Study, task: str, budget: Budget) -> str:
    body, films = "", ""
    here = [strip for strip in study.strips if strip.task == task]
    arms = [arm for arm in dict.fromkeys(row["arm"] for row in study.results["rows"]) if arm in {strip.arm for strip in here}]
    for strip in [strip for arm in arms for strip in [strip for strip in here if strip.arm == arm][:MOST_STRIPS]]:
        name = f"film strip {strip.label} ({action_set_label(task)})"
        svg = to_svg(figures.strip_figure(strip), f"{name}: {', '.join(label for label, _ in strip_rows(strip))}")
        if budget.take(len(svg) * 3 // 4, name):
            body += f'<div class="strip" tabindex="0">{html.figure(svg, _strip_caption(strip))}</div>\n'
        mp4 = encode(strip_film(strip), strip.fps)
        if budget.take(len(mp4), f"film of {name}"):
            films += html.figure(html.video(mp4, name), f"{strip.label}: truth above, prediction below")
    return body + (f'<div class="films">{films}</div>\n' if films else "")


def _strip_caption(strip) -> str:
    chunks = f" The ruler changes shade where a new chunk of {strip.chunk} frames begins." if strip.chunk else ""
    return f"{strip.label}.{chunks}"


# ---------------------------------------------------------------------- the rest


def _classifier(study: Study) -> str:
    rows = [row for row in study.results["rows"] if row["metric"].partition("/")[0] in ("precision", "recall", "false_success")]
    body = ""
    if rows:
        cells = [
            [
                f"{r['metric'].replace('/', ', ').replace('_', ' ')} ({r['task']})",
                number(r["value"], r["metric"]),
                interval(r),
                f"{r['n']:,}",
            ]
            for r in rows
        ]
        body += html.table(["measure", "%", "95 %", "n"], cells)
    panels = "".join(
        html.figure(
            to_svg(figures.reliability_figure(each), f"Reliability of the success classifier on {each.task}"),
            f"{each.task}: per step of held-out real episodes, how often the goal held; larger dots hold more steps",
        )
        for each in study.reliability
    )
    return body + (f'<div class="grid">{panels}</div>\n' if panels else "")


def _critics(study: Study) -> str:
    """Return what critics and weights say of themselves, and a reliability plot for each training."""
    rows = [row for row in study.results["rows"] if row["metric"].rpartition("/")[2] in ("viability", "efficiency", "weights")]
    cells = [[row["task"], row["arm"], row["metric"], number(row["value"], row["metric"]), interval(row), f"{row['n']:,}"] for row in rows]
    body = html.table(["task", "of", "measure", "value", "95 %", "trainings"], cells, words=(0, 1, 2)) if cells else ""
    panels = "".join(
        html.figure(
            to_svg(figures.reliability_figure(each), f"Reliability of {each.task}"),
            f"{each.task}: per step of held-out episodes, how often they succeeded; larger dots hold more steps",
        )
        for each in study.viability
    )
    return body + (f'<div class="grid">{panels}</div>\n' if panels else "")


def _recoveries(study: Study) -> str:
    """Return success against recoveries per episode, a panel a task."""
    panels = ""
    for task in dict.fromkeys(point.task for point in study.recovering):
        drawn = habc.recovering_figure([point for point in study.recovering if point.task == task])
        panels += html.figure(to_svg(drawn, f"Success over recoveries on {task}"), f"{task}: a dot is a policy, one of each training seed")
    return f'<div class="grid">{panels}</div>\n' if panels else ""


def _guidance(study: Study, budget: Budget) -> str:
    demonstrated = [(each.title, guidance.timeline_figure(each)) for each in study.timelines[:MOST_EPISODES]]
    guided = [(each.title, guidance.guided_figure(each)) for each in study.guided[:MOST_EPISODES]]
    body = ""
    for intro, drawn in (
        ("How far demonstrations are from the prototypes of each phase.", demonstrated),
        ("Guided episodes: how far from their phase, and where the gate was open.", guided),
    ):
        panels = ""
        for title, figure in drawn:
            svg = to_svg(figure, title)
            if budget.take(len(svg) * 3 // 4, title):
                panels += html.figure(svg, title)
        body += f'<p>{intro}</p>\n<div class="grid">{panels}</div>\n' if panels else ""
    return body


def _films(videos: Sequence[Video], budget: Budget) -> str:
    groups: dict[str, list[Video]] = {}
    for each in videos:
        groups.setdefault(each.group, []).append(each)
    kept: dict[str, str] = dict.fromkeys(groups, "")
    for turn in range(max(map(len, groups.values()), default=0)):  # one of each group in turn, so that none is crowded out
        for group, members in groups.items():
            if turn < len(members) and budget.take(len(members[turn].mp4), f"{group}: {members[turn].title}"):
                kept[group] += html.figure(html.video(members[turn].mp4, members[turn].title), members[turn].title)
    shown, folded = "", ""
    for group, films in kept.items():
        if films and group.startswith(DATASET):
            folded += f'<details><summary>{escape(group)}</summary><div class="films">{films}</div></details>\n'
        elif films:
            size = "grid two" if group.startswith(TESTED) else "films"
            shown += f'<h3>{escape(group)}</h3>\n<div class="{size}">{films}</div>\n'
    return shown + (f"<h3>Recorded and imagined episodes</h3>\n{folded}" if folded else "")


def _other(results: Mapping[str, Any]) -> str:
    shown = {*SHARES, *FIDELITY, "precision", "recall", "false_success", "seconds", models.ACTION_ERROR}
    rows = [row for row in results["rows"] if row["metric"].partition("/")[0] not in shown and not models.is_of_long_roll(row["metric"])]
    rows = [row for row in rows if row["metric"].rpartition("/")[2] not in ("viability", "efficiency", "weights")]
    cells = [[row["task"], row["arm"], row["metric"], number(row["value"], row["metric"]), interval(row), f"{row['n']:,}"] for row in rows]
    return html.table(["task", "arm", "metric", "value", "95 %", "n"], cells, words=(0, 1, 2)) if cells else ""


def _time(study: Study) -> str:
    if study.stages:
        stages = study.stages if len({stage.unit for stage in study.stages}) == 1 else _summed(study.stages)
        drawn = html.figure(to_svg(figures.timeline_figure(stages), "When each stage ran, or how long it took"))
        return f'<div class="strip" tabindex="0">{drawn}</div>\n'
    rows = [r for r in study.results["rows"] if r["metric"].startswith("seconds/") and not models.is_of_long_roll(r["metric"])]
    cells = [[row["metric"].partition("/")[2], row["arm"], _duration(row["value"])] for row in rows]
    return html.table(["stage", "of", "time"], cells, words=(0, 1)) if cells else ""


def _summed(stages: Sequence[Stage]) -> list[Stage]:
    """Add up the stages of the same name over all units."""
    seconds: dict[str, list[float]] = {}
    for stage in stages:
        seconds.setdefault(stage.name, []).append(stage.seconds)
    return [Stage(f"{len(taken)} units" if len(taken) > 1 else "", name, None, sum(taken)) for name, taken in seconds.items()]


def _notes(results: Mapping[str, Any], budget: Budget) -> str:
    notes = list(results["notes"])
    if left := budget.left_out:
        some = "; ".join(left[:5]) + (f"; and {len(left) - 5} more" if len(left) > 5 else "")
        notes.append(f"Left out to keep the page small ({len(left)}): {some}.")
    return "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>\n" if notes else ""


def _provenance(study: Study) -> str:
    results = study.results
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    facts = [
        ("Command", results["command"]),
        ("Commit", results["commit"]),
        ("Versions", versions),
        ("Renderer", results["machine"]["renderer"] or "not recorded"),
    ]
    body = html.pairs_list(facts)
    if study.provenance:
        cells = [
            [
                record["folder"],
                record["kind"],
                record["fingerprint"],
                ", ".join(f"{name} {value}" for name, value in record["inputs"].items()),
                record["commit"],
            ]
            for record in study.provenance
        ]
        listing = html.table(["folder", "kind", "fingerprint", "made from", "commit"], cells, words=range(5))
        body += f"<details><summary>{len(cells)} artefacts and what each was made from</summary>{listing}</details>\n"
    if study.config:
        body += f"<details><summary>Configuration</summary><pre>{escape(study.config)}</pre></details>\n"
    return body


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
