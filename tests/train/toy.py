"""A learner small enough to train in milliseconds, with every source of randomness that a resume must reproduce. Also run as a script."""

import os
import signal
import sys

import torch
from torch import nn

from robowm.train.learner import Learner, derive_seed, fit
from robowm.train.optim import OptimConfig

OPTIM = OptimConfig(lr=1e-2, warmup_steps=10)


class Net(nn.Module):
    """Has dropout (global generator), a running buffer and a convolution."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(4 * 16, 2)

    def forward(self, x):
        return self.out(self.drop(torch.relu(self.norm(self.conv(x)))).flatten(1))


def batch(step, seen=None):
    if seen is not None:
        seen.append(step)
    generator = torch.Generator().manual_seed(derive_seed(7, step))
    x = torch.randn(8, 1, 4, 4, generator=generator)
    return {"x": x, "y": torch.stack([x.mean((1, 2, 3)), x[:, 0, 0, 0]], 1)}


def loss(model, batch, generator):
    noise = torch.randn(batch["x"].shape, generator=generator, device=batch["x"].device)
    error = (model(batch["x"] + 0.1 * noise).float() - batch["y"]).pow(2).mean()
    return error, {"error": error}


def make(seen=None):
    torch.manual_seed(0)
    return Learner(Net(), lambda step: batch(step, seen), loss)


def train(folder, *, learner=None, steps=100, save_every=10, **options):
    settings = {"optim": OPTIM, "seed": 3, "device": "cpu", "precision": "fp32", "log_every": 5} | options
    return fit(learner or make(), steps=steps, output_dir=folder, save_every=save_every, **settings)


if __name__ == "__main__":
    folder, kill_at = sys.argv[1], int(sys.argv[2])
    learner = make()

    def deadly(step):
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch(step)

    averaged = train(folder, learner=Learner(learner.model, deadly, learner.loss))
    rank = os.environ.get("RANK")
    if rank is not None:
        torch.save({"live": learner.model.state_dict(), "ema": averaged.state_dict()}, f"{folder}/rank{rank}.pt")
