import pytest

from robowm.data.fake import fake_store
from robowm.train.optim import OptimConfig
from robowm.world_model.train import run

NODE = {"_target_": "robowm.nn.unet.VideoUNet", "channels": [16, 16], "condition": 32, "patch": 4}
OPTIM = OptimConfig(lr=1e-3, warmup_steps=2, ema=0.9)


def train(store, output_dir, steps=6, more=(), **settings):
    given = {"world_model": {"network": NODE}, "batch_size": 2, "optim": OPTIM, "log_every": 3, "save_every": 3, "device": "cpu"}
    return run(stores=[{"path": path} for path in (store, *more)], output_dir=output_dir, steps=steps, **{**given, **settings})


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return fake_store(tmp_path_factory.mktemp("data") / "store", [12, 9, 20]).path


@pytest.fixture(scope="session")
def trained(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("world_model") / "wm"
    train(store, folder)
    return folder
