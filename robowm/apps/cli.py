"""``robowm <verb> key=value ...``: finds the verb and hands over. Imports nothing heavy, so that ``robowm --help`` is immediate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from robowm import __version__
from robowm.errors import nearest

VERBS: dict[str, str] = {
    "collect": "record successful demonstrations of an expert",
    "import": "read a LeRobotDataset v3, a robomimic HDF5 or a Diffusion Policy buffer into a store",
    "train-policy": "clone a policy from stores of episodes",
    "rollout": "run a policy and record every episode",
    "train-world-model": "train an action-conditioned video model on stores",
    "rl-world-model": "post-train a world model by RL on its own rollouts (PersistWorld)",
    "train-success": "train the success classifier on judged rollouts",
    "train-dynamics": "learn where actions lead in the latent space of a policy's encoder (ReGuide, LPB)",
    "find-phases": "find phases and targets in demonstrations as a policy's encoder sees them (ReGuide)",
    "guide": "record successful episodes of a policy that is guided back to demonstrated states (ReGuide)",
    "takeover": "run a policy that a scripted person takes over from when it is stuck, and record every episode (RaC, HG-DAgger)",
    "train-critics": "learn how likely and how soon a policy succeeds from a state (HABC)",
    "weigh": "write a weight for each step beside stores, by critics or by controllers (HABC, AWR, Sirius, IWR)",
    "imagine": "let a policy act inside a world model, judge and keep its successes",
    "improve": "fine-tune a policy on a mixture of stores",
    "evaluate": "measure success of a policy on paired start states",
    "evaluate-world-model": "measure a world model on held-out episodes",
    "evaluate-imagined": "execute imagined episodes in the simulator and compare verdicts",
    "bench": "compare world models on any stores: fidelity, controls, actions, regimes, long rolls",
    "report": "gather results into one JSON file and one HTML page",
    "flywheel": "run all stages of an experiment, skip finished ones, resume",
    "doctor": "check versions, rendering, device, disk and weights",
}

USAGE = """usage: robowm <verb> key=value ... [-m key=a,b]

{verbs}

robowm <verb> --help lists the verb's keys and choices. -m runs one job for each combination of comma-separated values.
"""


def module_of(verb: str) -> str:
    """Return the name of the verb's module, which is also the name of its config."""
    return {"import": "import_data"}.get(verb, verb.replace("-", "_"))


def usage() -> str:
    """Return the text of ``robowm --help``."""
    width = max(map(len, VERBS))
    return USAGE.format(verbs="\n".join(f"  {verb:<{width}}  {line}" for verb, line in VERBS.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 done, 1 failed, 2 something for the user to put right."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return 0 if words else 2
    verb, *rest = words
    if verb in ("-V", "--version"):
        print(__version__)
        return 0
    if verb not in VERBS:
        print(f"robowm: unknown verb {verb!r}; {nearest(verb, VERBS)}", file=sys.stderr)
        return 2
    return import_module(f"robowm.apps.{module_of(verb)}").main(rest)


if __name__ == "__main__":
    sys.exit(main())
