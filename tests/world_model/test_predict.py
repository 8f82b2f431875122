import numpy as np
import pytest
import torch

from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.protocols import Env, WorldModel
from robowm.rollout import run_episodes
from robowm.types import Obs
from robowm.world_model.imagined import STREAM, ImaginedEnv
from robowm.world_model.predict import load_world_model
from tests.fakes import NoisePolicy


@pytest.fixture(scope="module")
def model(trained):
    return load_world_model(trained, device="cpu", infer_width=4)


@pytest.fixture(scope="module")
def starts(store):
    opened = EpisodeStore.open(store)

    def first(seeds):
        episodes = [opened.episode(int(seed) % len(opened)) for seed in seeds]
        frames = {camera: np.stack([e.frames[camera][:1] for e in episodes]) for camera in opened.spec.cameras}
        truth = np.stack([e.environment_state[:1] for e in episodes])
        return Obs(frames, np.stack([e.state[:1] for e in episodes]), truth, tuple(e.task for e in episodes))

    return first


def actions(n, h=4, seed=0):
    return np.random.default_rng(seed).uniform(-0.1, 0.1, (n, h, 5)).astype(np.float32)


def rngs(seeds):
    return [np.random.default_rng(int(seed)) for seed in seeds]


def test_satisfies_the_protocols(model, starts):
    assert isinstance(model, WorldModel) and isinstance(ImaginedEnv(model, starts, 2, 10.0, "fake/move"), Env)


def test_prediction_has_the_shapes_of_real_observations(model, starts):
    memory = model.start(starts([0, 1]))
    obs, _ = model.predict(memory, actions(2), rngs([0, 1]))
    assert list(obs.frames) == ["external", "wrist"]
    assert all(frames.shape == (2, 4, 32, 32, 3) and frames.dtype == np.uint8 for frames in obs.frames.values())
    assert obs.state.shape == (2, 4, 5) and obs.state.dtype == np.float32 and obs.environment_state is None and obs.task == ("move", "move")


def test_outcome_depends_neither_on_the_batch_nor_on_the_place_in_it(model, starts):
    seeds = list(range(7))
    together, _ = model.predict(model.start(starts(seeds)), actions(7), rngs(seeds))
    for order in ([3], [6, 3, 0], [5, 4, 3, 2, 1]):
        alone, _ = model.predict(model.start(starts(order)), actions(7)[order], rngs(order))
        for camera in together.frames:
            assert np.array_equal(alone.frames[camera], together.frames[camera][order])
        assert np.array_equal(alone.state, together.state[order])


def test_memory_is_a_ring_that_holds_what_was_shown(model, starts):
    memory = model.start(starts([0, 1]))
    size = memory.recent.shape
    first = memory.first.clone()
    for i in range(5):
        obs, memory = model.predict(memory, actions(2, seed=i), rngs([i, i + 9]))
    assert memory.recent.shape == size and torch.equal(memory.first, first)
    shown = model.net.layout.frames(memory.recent)
    for camera, frames in obs.frames.items():
        assert np.array_equal(shown[camera].numpy(), frames[:, -2:])


def test_start_takes_several_real_rows(model, store):
    episode = EpisodeStore.open(store).episode(2)
    rows = slice(3, 8)
    obs = Obs({c: f[None, rows] for c, f in episode.frames.items()}, episode.state[None, rows], None, (episode.task,))
    memory = model.start(obs)
    assert np.array_equal(model.net.layout.frames(memory.recent)["wrist"].numpy()[0], episode.frames["wrist"][6:8])
    assert np.array_equal(model.net.layout.frames(memory.first)["external"].numpy()[0], episode.frames["external"][3])


def test_more_sampling_steps_and_temperature_zero_are_settings_of_the_loader(trained, starts):
    memory_of = lambda m: m.start(starts([0]))  # noqa: E731
    one, three = (load_world_model(trained, device="cpu", sampling_steps=s) for s in (1, 3))
    a, b = (m.predict(memory_of(m), actions(1), rngs([0]))[0].frames["wrist"] for m in (one, three))
    assert not np.array_equal(a, b)
    still = load_world_model(trained, device="cpu", temperature=0.0)
    assert (three.name, still.name) == (f"{one.name}-steps3", f"{one.name}-temperature0"), "what is imagined names how it was sampled"
    c, d = (still.predict(memory_of(still), actions(1), rngs([seed]))[0].frames["wrist"] for seed in (1, 2))
    assert np.array_equal(c, d)


def test_wrong_inputs_are_one_line(model, starts):
    obs = starts([0])
    memory = model.start(obs)
    with pytest.raises(UserError, match=r"needs camera 'wrist'"):
        model.start(Obs({"external": obs.frames["external"]}, obs.state, None, obs.task))
    with pytest.raises(UserError, match=r"external frames of \(32, 32\), found \(16, 16\)"):
        model.start(Obs({c: f[:, :, ::2, ::2] for c, f in obs.frames.items()}, obs.state, None, obs.task))
    with pytest.raises(UserError, match=r"trained on 5 proprioception entries, found 4"):
        model.start(Obs(obs.frames, obs.state[..., :4], None, obs.task))
    with pytest.raises(UserError, match=r"\(1, 5, 5\), expected \[1, 1\.\.4, 5\]"):
        model.predict(memory, actions(1, 5), rngs([0]))
    with pytest.raises(UserError, match="NaN or infinity for episode 0"):
        model.predict(memory, np.full((1, 4, 5), np.nan, np.float32), rngs([0]))


def test_a_task_that_it_was_not_trained_on_is_refused_unless_named(trained, model, starts):
    obs = starts([0])
    strange = Obs(obs.frames, obs.state, None, ("insert",))
    with pytest.raises(UserError, match="was trained on 'move', here the task is 'insert'"):
        model.start(strange)
    assert load_world_model(trained, device="cpu", tasks=["insert"]).start(strange).task == ("insert",)


def test_damaged_weights_are_named(trained, tmp_path):
    import shutil

    shutil.copytree(trained, tmp_path / "wm")
    (tmp_path / "wm" / "model.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match=r"model\.safetensors is missing or damaged"):
        load_world_model(tmp_path / "wm", device="cpu")


def test_a_policy_chunk_of_eight_is_two_predictions_and_an_odd_rest_is_cut(model, starts):
    env = ImaginedEnv(model, starts, 2, 10.0, "fake/move")
    env.reset([0, 1])
    eight = actions(2, 8)
    steps = env.step(eight, np.ones(2, bool))
    memory = model.start(starts([0, 1]))
    generators = [np.random.default_rng([STREAM, 0, seed]) for seed in (0, 1)]
    first, memory = model.predict(memory, eight[:, :4], generators)
    second, memory = model.predict(memory, eight[:, 4:], generators)
    assert np.array_equal(steps.obs.frames["external"], np.concatenate([first.frames["external"], second.frames["external"]], 1))
    three = env.step(actions(2, 3), np.ones(2, bool))
    assert three.obs.state.shape == (2, 3, 5) and three.valid.shape == (2, 3)
    third, _ = model.predict(memory, actions(2, 3), generators)
    assert np.array_equal(third.state, three.obs.state)


def test_inactive_episodes_stand_still(model, starts):
    env = ImaginedEnv(model, starts, 3, 10.0, "fake/move")
    env.reset([0, 1, 2])
    before = env.step(actions(3), np.ones(3, bool))
    steps = env.step(actions(3), np.array([True, False, True]))
    assert np.array_equal(steps.obs.frames["wrist"][1], before.obs.frames["wrist"][1, -1:].repeat(4, 0))
    assert steps.valid.tolist() == [[True] * 4, [False] * 4, [True] * 4]
    other = ImaginedEnv(model, starts, 3, 10.0, "fake/move")
    other.reset([0, 1, 2])
    other.step(actions(3), np.ones(3, bool))
    again = other.step(actions(3), np.ones(3, bool))
    resumed = env.step(actions(3), np.array([False, True, False]))
    assert np.array_equal(resumed.obs.frames["wrist"][1], again.obs.frames["wrist"][1]), "its noise and memory waited for it"


def test_imagined_episodes_are_not_judged_and_do_not_depend_on_n(model, starts):
    def imagined(n):
        env = ImaginedEnv(model, starts, n, 10.0, "fake/move")
        rollouts = run_episodes(
            env, NoisePolicy(8, 5), range(5), max_steps=19, kind="imagined", stop_after_success=2, world_model=model.name
        )
        return [rollout.episode for rollout in rollouts]

    one, five = imagined(1), imagined(5)
    assert len(five) == 5 and all(len(e) == 19 and np.isnan(e.success) and e.environment_state is None for e in five)
    for a, b in zip(one, five, strict=True):
        assert np.array_equal(a.frames["external"], b.frames["external"]) and np.array_equal(a.state, b.state)
    assert five[0].source.world_model == model.name and five[0].source.kind == "imagined"
    assert np.array_equal(five[2].frames["wrist"][0], starts([2]).frames["wrist"][0, 0])


def test_another_salt_imagines_another_future(model, starts):
    futures = []
    for salt in (0, 1):
        env = ImaginedEnv(model, starts, 1, 10.0, "fake/move", salt=salt)
        env.reset([0])
        futures.append(env.step(actions(1), np.ones(1, bool)).obs.frames["external"])
    assert not np.array_equal(*futures)
