"""Made-up studies for the report's tests."""

from __future__ import annotations

import numpy as np

from robowm.report.study import Guided, Reliability, Stage, Strip, Study, Timeline, Video

ARMS = {"never_moves": 0.0, "base": 0.34, "base_longer": 0.36, "+real": 0.52, "+imagined": 0.44, "+real+imagined": 0.58, "expert": 0.99}


def row(task, arm, metric, value, half=0.04, n=500, bounds=(0.0, 1.0)):
    low, high = max(bounds[0], value - half), min(bounds[1], value + half)
    return {"task": task, "arm": arm, "metric": metric, "value": value, "low": low, "high": high, "n": n}


def pair(task, a, b, diff, half=0.05, n=500):
    return {
        "task": task,
        "a": a,
        "b": b,
        "metric": "success",
        "diff": diff,
        "low": diff - half,
        "high": diff + half,
        "n": n,
        "wins": 0.3,
        "losses": max(0.0, 0.3 - diff),
    }


def results(tasks=("tabletop/pick_place",)):
    """A complete, valid results file."""
    rows, pairs = [], []
    for task in tasks:
        rows += [row(task, arm, "success", value) for arm, value in ARMS.items()]
        rows += [row(task, arm, "success_at_end", value * 0.9) for arm, value in ARMS.items()]
        pairs += [pair(task, "+real+imagined", "base_longer", 0.22), pair(task, "+real+imagined", "+real", 0.03)]
        for suffix in ("", ":open_loop"):
            for arm, slope in (("world_model", 0.06), ("copy_last", 0.12), ("shuffled_actions", 0.14)):
                for camera in ("external", "wrist"):
                    for frame in (1, 10, 20, 40, 60):
                        psnr = 31 - slope * frame
                        rows.append(row(task + suffix, arm, f"psnr/{camera}@{frame}", psnr, 0.6, 64, (0, 99)))
                        rows.append(row(task + suffix, arm, f"ssim/{camera}@{frame}", 0.95 - slope * frame / 20, 0.02, 64))
                        rows.append(row(task + suffix, arm, f"lpips/{camera}@{frame}", 0.05 + slope * frame / 20, 0.02, 64))
                    rows.append(row(task + suffix, arm, f"psnr/{camera}@mean", 31 - slope * 30, 0.4, 64, (0, 99)))
                    rows.append(row(task + suffix, arm, f"ssim/{camera}@mean", 0.95 - slope * 1.5, 0.02, 64))
                    rows.append(row(task + suffix, arm, f"lpips/{camera}@mean", 0.05 + slope * 1.5, 0.02, 64))
        rows.append(row(task, "success_classifier", "precision/success_classifier", 0.97, 0.02, 120))
        rows.append(row(task, "success_classifier", "recall/success_classifier", 0.71, 0.06, 160))
        rows.append(row(task, "success_classifier", "false_success/imagined", 0.18, 0.05, 200))
    for stage, seconds in (("collect", 92.0), ("train-policy", 310.0), ("rollout", 140.0), ("train-world-model", 540.0)):
        rows.append({**row(tasks[0], "flywheel", f"seconds/{stage}", seconds, n=1), "low": seconds, "high": seconds})
    return {
        "study": "demo",
        "command": "robowm flywheel experiment=demo",
        "commit": "0123456789ab",
        "date": "2025-12-02",
        "machine": {"cpus": 2, "gpu": None, "renderer": "egl"},
        "versions": {"torch": "2.11.0", "mujoco": "3.3.0"},
        "seconds": 1480.0,
        "train_seeds": [0],
        "eval_seeds": [100000, 100499],
        "rows": rows,
        "pairs": pairs,
        "notes": ["One training seed: the interval holds for these weights, not for another training run."],
    }


def strip(length=60, size=32, chunk=4, task="tabletop/pick_place:open_loop", drift=1):
    """A disc that the prediction loses slowly."""
    yy, xx = np.mgrid[:size, :size]

    def film(speed):
        frames = np.full((length + 1, size, size, 3), 60, np.uint8)
        frames[:, :, :, 2] = 90
        for t in range(length + 1):
            x, y = size * 0.2 + speed * t, size * (0.5 + 0.25 * np.sin(t / 9))
            frames[t][(xx - x) ** 2 + (yy - y) ** 2 < (size / 7) ** 2] = (230, 120, 40)
        return frames

    fast, slow = film(0.3 * size / 32), film((0.3 - 0.06 * drift) * size / 32)
    return Strip(task, "seed 60012", {"external": fast, "wrist": fast[:, ::-1]}, {"external": slow, "wrist": slow[:, ::-1]}, chunk, 10.0)


def study(tasks=("tabletop/pick_place",)):
    """A study with every part present."""
    from robowm.report.films import encode, strip_film

    film = encode(strip_film(strip(length=20)), 10)
    names = (("collect", 0, 92), ("train-policy", 92, 310), ("rollout", 402, 140), ("train-world-model", 402, 540), ("improve", 950, 300))
    return Study(
        results(tasks),
        strips=[strip(), strip(task="tabletop/pick_place", drift=0.5)],
        videos=[
            Video("Failures of base", "seed 100012, 60 steps", film),
            Video("Failures of base", "seed 100017, 60 steps", film),
            Video("Dataset demonstrations", "episode 0: pick up the block, demo, seed 0, 41 steps, success (simulator)", film),
        ],
        reliability=[
            Reliability(
                tasks[0], np.array([0.05, 0.3, 0.5, 0.72, 0.96]), np.array([0.02, 0.2, 0.55, 0.8, 0.97]), np.array([90, 12, 8, 15, 70]), 0.9
            )
        ],
        timelines=[Timeline("phases, demonstration 0", np.array([[0.2, 0.3, 1.4, 2.0], [1.5, 0.9, 0.2, 0.3]]), np.array([0, 0, 1, 1]))],
        guided=[Guided("guided, start 20004, success", np.array([0.3, 0.9, 1.2, 0.4]), np.array([0, 0, 1, 1]), np.array([0, 0.5, 1, 0]))],
        stages=[Stage("pick_place, seed 0", name, float(start), float(seconds)) for name, start, seconds in names],
        provenance=[
            {
                "folder": "policy/base",
                "kind": "policy",
                "fingerprint": "a" * 16,
                "inputs": {"demonstrations": "b" * 16},
                "commit": "0123456789ab",
            }
        ],
        config="env:\n  task: pick_place\n  image_size: 32\n",
    )
