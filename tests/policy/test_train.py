import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.configs.parser import load_plugin
from lerobot.policies.factory import get_policy_class, make_pre_post_processors

from robowm.artefacts import read_artefact
from robowm.data.fake import fake_episode, fake_spec
from robowm.data.sidecar import write_sidecar
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.policy.lerobot import load_policy
from robowm.policy.train import run
from robowm.train.checkpoint import load_newest
from robowm.train.log import read_log
from robowm.types import Obs
from tests.policy.helpers import ACT, ACT_STATE, CAMERAS, OPTIM, RESNET, SMALL, STATE, VLA, completed, generators, make_store

GOLDEN = Path(__file__).parents[1] / "golden" / "policy_losses.json"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "store").path


def train(store, output_dir, *, node=SMALL, steps=4, **options):
    settings = {"optim": OPTIM, "batch_size": 4, "seed": 0, "device": "cpu", "precision": "fp32", "log_every": 1} | options
    stores = settings.pop("stores", [{"path": store}])
    return run(stores=stores, policy=node, steps=steps, output_dir=output_dir, **settings)


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    train(store, folder)
    return folder


def observe(rows, n=2):
    episodes = [fake_episode(fake_spec(), 20, seed) for seed in range(n)]
    frames = {camera: np.stack([e.frames[camera][rows] for e in episodes]) for camera in CAMERAS}
    truth = np.stack([e.environment_state[rows] for e in episodes])
    return Obs(frames, np.stack([e.state[rows] for e in episodes]), truth, ("move",) * n)


@pytest.mark.parametrize("kind", ["small", "resnet", "act", "state", "vla"])
def test_trains_saves_loads_and_acts_with_golden_losses(kind, store, tmp_path, request):
    node = {"small": SMALL, "resnet": RESNET, "act": ACT, "state": STATE, "vla": VLA}[kind]
    train(store, tmp_path, node=completed(node, request))
    losses = [line["loss"] for line in read_log(tmp_path / "log.jsonl")]
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.is_file() else {}
    if os.environ.get("ROBOWM_WRITE_GOLDEN"):
        golden[kind] = losses
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    np.testing.assert_allclose(losses, golden[kind], rtol=1e-4)
    policy = load_policy(tmp_path, device="cpu", infer_width=16)
    assert policy.name == ("state-" if kind == "state" else "") + read_artefact(tmp_path, "policy")["fingerprint"]
    actions, _ = policy.act(observe(slice(0, 1)), policy.start(2), generators([0, 1]))
    assert actions.shape == (2, 8, 5) and np.isfinite(actions).all()


def test_the_averaged_weights_are_what_is_saved(trained):
    averaged = {k.removeprefix("ema."): v for k, v in load_newest(trained / "checkpoints").tensors.items() if k.startswith("ema.")}
    model = load_policy(trained, device="cpu").model.state_dict()
    live = load_newest(trained / "checkpoints").tensors["model.diffusion.unet.enter.weight"]
    assert all(torch.equal(value, averaged[name]) for name, value in model.items())
    assert not torch.equal(model["diffusion.unet.enter.weight"], live)


def test_called_again_it_returns_at_once_and_with_other_settings_it_refuses(store, trained):
    before = (trained / "artefact.json").read_text()
    assert train(store, trained)["step"] == 4
    assert (trained / "artefact.json").read_text() == before
    with pytest.raises(UserError, match="batch_size"):
        train(store, trained, batch_size=8)


@pytest.mark.parametrize("node", [SMALL, VLA], ids=["small", "vla"])
def test_interrupted_and_resumed_it_ends_in_the_same_bits(node, store, tmp_path, monkeypatch, request):
    node, undisturbed, cut = completed(node, request), tmp_path / "whole", tmp_path / "cut"
    train(store, undisturbed, node=node)
    from robowm.data.sampler import ClipSampler

    whole = ClipSampler.batch

    def dies(self, step):
        if step == 3:
            raise KeyboardInterrupt
        return whole(self, step)

    monkeypatch.setattr(ClipSampler, "batch", dies)
    with pytest.raises(KeyboardInterrupt):
        train(store, cut, node=node, save_every=2)
    monkeypatch.undo()
    train(store, cut, node=node, save_every=2)
    a, b = load_newest(undisturbed / "checkpoints"), load_newest(cut / "checkpoints")
    assert a.tensors.keys() == b.tensors.keys() and all(torch.equal(a.tensors[k], b.tensors[k]) for k in a.tensors)
    assert read_artefact(undisturbed)["fingerprint"] == read_artefact(cut)["fingerprint"]


def test_improve_starts_from_the_averaged_weights_and_keeps_the_normaliser(store, trained, tmp_path):
    other = EpisodeStore.create(tmp_path / "other", fake_spec())
    other.append(fake_episode(fake_spec(), 60, seed=9, kind="rollout"))  # a wider range than the base has seen
    train(store, tmp_path / "same", node=None, init_from=trained, steps=1, optim=replace(OPTIM, lr=1e-9))
    base, same = load_policy(trained, device="cpu"), load_policy(tmp_path / "same", device="cpu")
    for name, value in base.model.state_dict().items():
        torch.testing.assert_close(same.model.state_dict()[name], value, rtol=0, atol=1e-8)
    stores = [{"path": store, "share": 0.5}, {"path": other.path, "share": 0.5, "only_success": True}]
    train(None, tmp_path / "mixed", node=None, init_from=trained, stores=stores)
    mixed = load_policy(tmp_path / "mixed", device="cpu")
    assert mixed.normalizers.to_json() == base.normalizers.to_json() and mixed.name != base.name
    inputs = read_artefact(tmp_path / "mixed")["inputs"]
    assert inputs["init_from"] == base.name and {"store0", "store1"} < inputs.keys()


def test_a_task_that_it_was_not_trained_on_is_refused_unless_named(store, trained, tmp_path):
    strange = replace(observe(slice(0, 1)), task=("insert", "insert"))
    policy = load_policy(trained, device="cpu", infer_width=16)
    with pytest.raises(UserError, match=r"was trained on 'move', here the task is 'insert'; .* tasks=\['insert'\]"):
        policy.act(strange, policy.start(2), generators([0, 1]))
    same = load_policy(trained, device="cpu", infer_width=16, tasks=["insert"])
    assert same.act(strange, same.start(2), generators([0, 1]))[0].shape == (2, 8, 5)
    other = EpisodeStore.create(tmp_path / "other", fake_spec())
    other.append(fake_episode(fake_spec(), 60, task="insert"))
    train(None, tmp_path / "both", node=None, init_from=trained, stores=[{"path": other.path}], steps=1)
    assert load_policy(tmp_path / "both", device="cpu").tasks == ("insert", "move")


def test_weights_of_one_are_plain_cloning_and_others_are_not(store, trained, tmp_path):
    for name, scale in (("ones", 0.0), ("ramp", 1.0)):
        opened = EpisodeStore.open(store)
        weight = 1 + scale * np.arange(opened.lengths.sum(), dtype=np.float32)
        write_sidecar(opened, name, {"weight": weight})
        train(store, tmp_path / name, stores=[{"path": store, "weights": name}])
    plain, ones, ramp = (read_log(folder / "log.jsonl") for folder in (trained, tmp_path / "ones", tmp_path / "ramp"))
    assert read_artefact(tmp_path / "ramp")["inputs"].keys() == {"store0", "store0.weights"}
    assert [line["loss"] for line in plain] == [line["loss"] for line in ones] != [line["loss"] for line in ramp]
    assert ones[0]["effective_share"] == 1.0 and ramp[0]["effective_share"] < 1.0


@pytest.mark.parametrize("kind", ["small", "epsilon", "act", "vla"])
def test_lerobot_itself_loads_it_and_chooses_the_same_actions(kind, store, tmp_path, request):
    node = {"small": SMALL, "epsilon": SMALL | {"prediction_type": "epsilon"}, "act": ACT_STATE, "vla": VLA}[kind]
    train(store, tmp_path, node=completed(node, request))
    folder = tmp_path / "pretrained_model"
    load_plugin("robowm.policy.lerobot_small")
    theirs = get_policy_class(PreTrainedConfig.from_pretrained(folder).type).from_pretrained(folder)
    before, after = make_pre_post_processors(theirs.config, pretrained_path=folder)
    ours = load_policy(tmp_path, device="cpu", infer_width=1)
    memory, generator = ours.start(1), generators([4])
    shape = ours.family.noise_shape(theirs.config) or ()
    drawn = generators([4])[0].standard_normal((2, *shape), np.float32)  # what the episode's generator gives for two chunks
    for first, rows in ((0, slice(0, 1)), (8, slice(1, 9))):
        noise = None if kind == "act" else torch.from_numpy(drawn[[first // 8]])
        actions, memory = ours.act(observe(rows, 1), memory, generator)
        for k in range(8):
            obs = observe(slice(first + k, first + k + 1), 1)
            raw = {f"observation.images.{c}": torch.from_numpy(f[0, 0]).permute(2, 0, 1) / 255 for c, f in obs.frames.items()}
            raw["observation.state"] = torch.from_numpy(obs.state[0, 0])
            raw |= {"observation.environment_state": torch.from_numpy(obs.environment_state[0, 0]), "task": obs.task[0]}
            action = theirs.select_action(before(raw), **({} if noise is None else {"noise": noise}))
            np.testing.assert_allclose(after(action)[0].numpy(), actions[0, k], atol=2e-5)


def test_either_a_fresh_policy_or_a_base(store, trained, tmp_path):
    for node, base in ((None, None), (SMALL, trained)):
        with pytest.raises(UserError, match="exactly one of policy"):
            train(store, tmp_path / "x", node=node, init_from=base)


def test_a_base_for_other_data_is_refused(trained, tmp_path):
    spec = fake_spec({"external": (32, 32), "wrist": (64, 64)})
    wide = make_store(tmp_path / "wide", (5,), spec=spec)
    with pytest.raises(UserError, match=r"cameras .*\(64, 64\)"):
        train(wide.path, tmp_path / "x", node=None, init_from=trained)


def test_something_else_than_a_finished_policy_is_refused(store, trained, tmp_path):
    with pytest.raises(UserError, match="expected a finished policy"):
        load_policy(tmp_path / "absent")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "artefact.json").write_text((trained / "artefact.json").read_text())
    with pytest.raises(UserError, match="pretrained_model"):
        load_policy(broken)
    record = json.loads((trained / "artefact.json").read_text())
    (broken / "artefact.json").write_text(json.dumps(record | {"kind": "world_model"}))
    with pytest.raises(UserError, match="'world_model', expected a 'policy'"):
        load_policy(broken)


def test_a_small_policy_can_learn_one_batch_by_heart(store, tmp_path):
    from robowm.data.sampler import ClipSampler
    from robowm.policy.lerobot import build
    from robowm.policy.lerobot_batch import Normalizers
    from robowm.policy.train import cloning_loss
    from robowm.train.learner import Learner, fit

    opened = EpisodeStore.open(store)
    torch.manual_seed(0)
    model, inputs = build(SMALL | {"denoiser_width": 128}, opened.spec)
    arrays = {key: [opened.rows(i, key) for i in range(len(opened))] for key in ("observation.state", "action")}
    normalizers = Normalizers.fit(arrays, {"observation.state": opened.spec.state_names, "action": opened.spec.action_names})
    offsets = {"obs_offsets": [-1, 0], "action_offsets": list(range(-1, 15))}
    batch = ClipSampler([{"path": store}], cameras=CAMERAS, batch_size=8, seed=0, **offsets).batch(0)
    optim = replace(OPTIM, lr=3e-3, warmup_steps=10, ema=0.9)
    learner = Learner(model, lambda step: batch, cloning_loss(normalizers, inputs))
    fit(learner, steps=150, optim=optim, seed=0, output_dir=tmp_path, device="cpu", precision="fp32", log_every=25)
    losses = [line["loss"] for line in read_log(tmp_path / "log.jsonl")]
    assert losses[-1] < 0.1 * losses[0]
