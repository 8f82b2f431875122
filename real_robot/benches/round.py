"""A round of HABC on the simulated robot by commands alone: demonstrations, take-overs, critics, weights, fine-tuning, deployment."""

from __future__ import annotations

from pathlib import Path

from real_robot.benches.stage import TASK, command, must


def run(folder: Path, *, size: str, demos: int, rollouts: int, episodes: int, speed: float, first_seed: int) -> None:
    """Make what is not there yet; each command skips what it has done. Leaves the evaluations ``base`` and ``habc``, on the same starts."""
    at = {name: folder / name for name in ("demos", "base", "rollouts", "critics", "weights", "habc")}
    robot = [f"size={size}", "robot=sim", f"robot.speed={speed}", "operator=scripted"]
    both = f"stores=[{{path: {at['demos']}}}, {{path: {at['rollouts']}}}]"
    judged = f"stores=[{{path: {at['rollouts']}}}]"
    weighed = f"stores=[{{path: {at['demos']}, weights: habc}}, {{path: {at['rollouts']}, weights: habc}}]"
    steps = [
        command("collect", *robot, f"episodes={demos}", f"output_dir={at['demos']}"),
        command("train-policy", f"size={size}", f"stores=[{{path: {at['demos']}}}]", f"output_dir={at['base']}"),
        command("collect", *robot, f"policy.path={at['base']}", f"episodes={rollouts}", f"familiar_to={at['demos']}",
                f"output_dir={at['rollouts']}"),
        command("train-critics", f"size={size}", f"encoder={at['base']}", judged, f"output_dir={at['critics']}"),
        command("weigh", f"size={size}", f"critics={at['critics']}", both, f"output_dir={at['weights']}"),
        command("improve", f"size={size}", f"init_from={at['base']}", weighed, f"output_dir={at['habc']}"),
    ]  # fmt: skip
    for arm in ("base", "habc"):
        words = [f"policy.path={at[arm]}", f"task_name={TASK}", f"arm={arm}", f"episodes={episodes}", f"first_seed={first_seed}"]
        steps.append(command("deploy", *robot, *words, f"output_dir={folder / f'deploy_{arm}'}"))
    for words in steps:
        must(words)
