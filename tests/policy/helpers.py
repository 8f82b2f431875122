"""Small policies and stores for tests."""

import numpy as np
import torch

from robowm.data.fake import fake_episode, fake_spec, fake_store
from robowm.policy.lerobot import adapter, build
from robowm.policy.lerobot_batch import Normalizers
from robowm.train.optim import OptimConfig
from robowm.types import Obs, Steps

CAMERAS = ["external", "wrist"]
SMALL = {"type": "robowm_diffusion", "cameras": CAMERAS, "encoder_width": 8, "encoder_features": 8, "denoiser_width": 32}
RESNET = {"type": "diffusion", "cameras": CAMERAS, "down_dims": [8, 16], "n_groups": 4, "spatial_softmax_num_keypoints": 4}
STATE = {"type": "robowm_diffusion", "environment_state": True, "denoiser_width": 32}
TINY = {"dim_model": 32, "n_heads": 2, "dim_feedforward": 32, "n_encoder_layers": 1, "n_vae_encoder_layers": 1, "latent_dim": 4}
ACT = {"type": "act", "cameras": CAMERAS, **TINY}
ACT_STATE = {"type": "act", "environment_state": True, **TINY}  # no ResNet, so it is quick
VLA = {
    "type": "smolvla",
    "cameras": CAMERAS,
    "num_vlm_layers": 2,
    "resize_imgs_with_padding": [64, 64],
    "chunk_size": 16,
    "n_action_steps": 8,
    "num_steps": 4,
    "max_state_dim": 8,
    "max_action_dim": 8,
}
OPTIM = OptimConfig(lr=1e-3, warmup_steps=2)


def make_store(path, lengths=(30, 7, 3), **options):
    return fake_store(path, lengths, **options)


def make_policy(node=SMALL, *, seed=0, width=16, steps=None, normalizers=None):
    """Return an adapter around a fresh model, fitted to fake data."""
    spec = fake_spec()
    torch.manual_seed(seed)
    model, inputs = build(node, spec)
    if normalizers is None:
        episode = fake_episode(spec, 40)
        arrays = {"observation.state": [episode.state], "action": [episode.action]}
        if inputs.environment_state:
            arrays["observation.environment_state"] = [episode.environment_state]
        names = {key: [str(i) for i in range(parts[0].shape[1])] for key, parts in arrays.items()}
        normalizers = Normalizers.fit(arrays, names, model.config.normalization_mapping)
    options = {
        "name": "x",
        "inputs": inputs,
        "normalizers": normalizers,
        "spec": spec,
        "device": "cpu",
        "infer_width": width,
        "steps": steps,
    }
    return adapter(model)(model, **options)


def completed(node, request):
    """Return ``node``; a SmolVLA gets the tiny vision-language model of the fixture ``vlm``, or the test is skipped."""
    return node | {"vlm_model_name": str(request.getfixturevalue("vlm"))} if node["type"] == "smolvla" else node


def generators(seeds):
    return [np.random.default_rng([0, seed]) for seed in seeds]


class ReplayEnv:
    """Shows the rows of fake episodes, one per seed, whatever is done; offset by the actions so that they matter."""

    fps, task_name = 10.0, "fake/replay"

    def __init__(self, n):
        self.n = n

    def reset(self, seeds):
        self._episodes = [fake_episode(fake_spec(), 60, seed) for seed in seeds]
        self._t, self._shift = 0, np.zeros((len(seeds), 1, 5), np.float32)
        return self._observe(1)

    def goal_holds(self):
        return np.zeros(len(self._episodes), bool)

    def step(self, actions, active):
        self._t += actions.shape[1]
        self._shift = self._shift + actions.mean(1, keepdims=True)
        shape = actions.shape[:2]
        return Steps(self._observe(shape[1]), np.zeros(shape, np.float32), *(np.zeros(shape, bool),) * 2, np.ones(shape, bool))

    def _observe(self, rows):
        span = slice(self._t - rows + 1, self._t + 1)
        frames = {camera: np.stack([e.frames[camera][span] for e in self._episodes]) for camera in CAMERAS}
        state = np.stack([e.state[span] for e in self._episodes]) + 0.01 * self._shift
        truth = np.stack([e.environment_state[span] for e in self._episodes])
        return Obs(frames, state, truth, ("move",) * len(self._episodes))
