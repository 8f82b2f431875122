"""A command line like robowm's: ``python fake_verbs.py <verb> key=value ... output_dir=<folder>``, and a DAG of such stages."""

import json
import sys
import time
from pathlib import Path

from robowm.artefacts import fingerprint_json, write_artefact
from robowm.flywheel.loop import run
from robowm.progress import Progress

STAGES = {
    "demos": {"verb": "make", "overrides": {"value": "{demo_seeds}"}},
    "base": {"verb": "add", "overrides": {"a": "{demos}", "value": 10}, "minutes": 5},
    "side": {"verb": "add", "overrides": {"a": "{demos}", "value": 20}},
    "sum": {"verb": "add", "overrides": {"a": "{base}", "b": "{side}"}},
}
OFFSETS = {"demo_seeds": {"first": 1, "per_train_seed": 100}}
COMMAND = (sys.executable, __file__)


def flywheel(output_dir, stages=STAGES, compose=None, **changes):
    arguments = {"task": "push", "train_seed": 0, "offsets": OFFSETS, "command": COMMAND} | changes
    return run(stages=stages, compose=compose or (lambda verb, words: {"words": list(words)}), output_dir=output_dir, **arguments)


def value_of(output_dir, name):
    return json.loads((Path(output_dir) / name / "artefact.json").read_text())["value"]


def main(verb, *words):
    if verb == "quick":
        return main(words[0], *(word for word in words[1:] if not word.startswith("pause=")))
    given = dict(word.split("=", 1) for word in words)
    folder = Path(given["output_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "calls").open("a") as file:
        file.write("x")
    value = int(given.get("value", 0))
    if (Path(given["output_dir"]).parent.parent / f"break-{folder.name}").exists():
        print("first line")
        print("the reason")
        return 1
    if "say" in given:
        print(given["say"].strip("'"))
    pause = float(given.get("pause", 0))
    with Progress(folder, 10, verb) as progress:
        for _ in range(10):
            time.sleep(pause / 10)
            progress.advance()
    for key in ("a", "b"):
        if key in given:
            value += json.loads((Path(given[key]) / "artefact.json").read_text())["value"]
    write_artefact(folder, kind=verb, fingerprint=fingerprint_json(value), inputs={}, config={}, value=value)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "flywheel":  # a whole flywheel to be killed
        slow = {name: {**node, "overrides": {**node["overrides"], "pause": 20 if name == "base" else 0}} for name, node in STAGES.items()}
        flywheel(sys.argv[2], slow)
    else:
        sys.exit(main(*sys.argv[1:]))
