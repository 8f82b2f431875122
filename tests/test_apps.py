"""Every app does its smallest job through the command line, is cut off, resumes, and ends with what an undisturbed run ends with."""

import json
import re

import numpy as np
import pytest

from robowm.apps.cli import main
from robowm.artefacts import read_artefact
from robowm.data.sidecar import read_sidecar
from robowm.data.spec import CONTROLLER
from robowm.data.store import EpisodeStore
from robowm.progress import Progress
from robowm.types import Controller

ENV = ["size=debug", "env.n=2"]
SHORT = ["max_steps=12", "stop_after_success=null"]


def robowm(*words):
    assert main([str(word) for word in words]) == 0


class Cut(KeyboardInterrupt):
    """Stands for Ctrl-C."""


def cut_off(monkeypatch, after):
    """Let the next run be interrupted at the ``after``-th call of Progress.advance."""
    calls = []
    advance = Progress.advance

    def advance_or_stop(self, *arguments, **facts):
        calls.append(1)
        if len(calls) == after:
            raise Cut
        advance(self, *arguments, **facts)

    monkeypatch.setattr(Progress, "advance", advance_or_stop)


def result_of(folder):
    """Return what must not depend on an interruption: the fingerprint and the per-episode outcomes without times."""
    episodes = folder / "episodes.jsonl"
    lines = [json.loads(line) for line in episodes.read_text().splitlines()] if episodes.is_file() else []
    return read_artefact(folder)["fingerprint"], [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("apps")


RECIPES = {  # the words of each verb; @demos is the folder that the recipe demos makes
    "demos": "collect ENV until_successes=4",
    "base": "train-policy size=debug stores=[{path:@demos}]",
    "rollouts": "rollout ENV SHORT policy.path=@base episodes=4",
    "held_out": "rollout ENV SHORT actor=open_loop episodes=3 purpose=validation",
    "world_model": "train-world-model size=debug stores=[{path:@demos},{path:@rollouts}]",
    "rl_world_model": "rl-world-model size=debug init_from=@world_model stores=[{path:@demos}]",
    "success": "train-success size=debug task=tabletop/pick_place stores=[{path:@demos},{path:@rollouts}] "
    "validation_stores=[{path:@held_out}]",
    "imagined": "imagine ENV n=2 episodes=4 max_steps=12 keep_failures=true policy.path=@base world_model.path=@world_model "
    "classifier.path=@success",
    "dynamics": "train-dynamics size=debug encoder=@base stores=[{path:@demos},{path:@rollouts}]",
    "phases": "find-phases size=debug phases=1 encoder=@base stores=[{path:@demos}]",
    "guided": "guide ENV SHORT episodes=4 keep_failures=true policy.guide.lower=null policy.guide.upper=null policy.path=@base "
    "policy.dynamics=@dynamics policy.phases=@phases",
    "takeover": "takeover ENV max_steps=24 episodes=4 policy.stuck.patience=4 policy.path=@base",
    "value_critics": "train-critics size=debug critic=iql encoder=@base stores=[{path:@demos},{path:@rollouts}]",
    "expert_rollouts": "rollout ENV actor=expert max_steps=80 episodes=6",
    "critics": "train-critics size=debug encoder=@base any_policy=true stores=[{path:@expert_rollouts},{path:@rollouts}]",
    "weights": "weigh size=debug critics=@critics weighting.min_successes=1 "
    "stores=[{path:@demos},{path:@expert_rollouts},{path:@rollouts}]",
    "improve": "improve size=debug init_from=@base stores=[{path:@demos}]",
    "evaluate": "evaluate ENV SHORT arm=base policy.path=@base purpose=tuning first_seed=50000",
    "evaluate_world_model": "evaluate-world-model size=debug task=tabletop/pick_place horizon=4 batch=1 episodes=3 "
    "world_model.path=@world_model stores={open_loop:@held_out}",
    "evaluate_imagined": "evaluate-imagined ENV store=@imagined",
    "bench": "bench size=debug suite=world_model task=tabletop/pick_place horizon=4 episodes=3 regimes={_target_:sim.tabletop.Regimes} "
    "env=tabletop/pick_place env.n=2 controls=[zero_actions] train_stores=[{path:@demos}] "
    "world_models={base:@world_model,rl:@rl_world_model} stores={open_loop:@held_out}",
}


@pytest.fixture(scope="module")
def made(root):
    """Make, once, the inputs that a verb needs."""

    def words(name):
        text = RECIPES[name].replace("ENV", " ".join(ENV)).replace("SHORT", " ".join(SHORT))
        return re.sub(r"@(\w+)", lambda found: str(made(found[1])), text).split()

    def made(name):
        folder = root / name
        if not folder.exists():
            robowm(*words(name), f"output_dir={folder}")
        return folder

    made.words = words
    return made


NAMES = (
    *("demos", "base", "rollouts", "world_model", "rl_world_model", "success", "imagined", "improve", "dynamics", "guided"),
    *("critics", "weights", "takeover", "value_critics"),
    *("evaluate", "evaluate_world_model", "evaluate_imagined", "bench"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_cut_off_ends_where_an_undisturbed_one_ends(name, made, tmp_path, monkeypatch, capfd):
    whole = made(name)
    words = [*made.words(name), f"output_dir={tmp_path / 'cut'}"]
    with monkeypatch.context() as patch:
        cut_off(patch, after=2)
        assert main(words) == 130
    assert "interrupted" in capfd.readouterr().err
    assert not (tmp_path / "cut" / "artefact.json").exists()
    robowm(*words)
    assert result_of(tmp_path / "cut") == result_of(whole)


@pytest.mark.parametrize("name", NAMES)
def test_a_finished_run_returns_at_once_and_another_request_is_refused(name, made, monkeypatch, capfd):
    folder = made(name)
    before = (folder / "artefact.json").stat().st_mtime_ns
    cut_off(monkeypatch, after=1)  # any work at all would be interrupted
    robowm(*made.words(name), f"output_dir={folder}")
    assert (folder / "artefact.json").stat().st_mtime_ns == before
    trained = ("base", "world_model", "success", "improve", "rl_world_model", "dynamics", "critics", "value_critics")
    key = "seed=1" if name in trained else "max_steps=13"
    others = {"evaluate_world_model": "horizon=8", "evaluate_imagined": "episodes=1", "bench": "horizon=8", "weights": "margin=3"}
    key = others.get(name, key)
    assert main([*made.words(name), key, f"output_dir={folder}"]) == 2
    assert key.split("=")[0] in capfd.readouterr().err


def test_a_vla_is_trained_improved_and_guided(made, vlm, tmp_path):
    demos, base = f"stores=[{{path: {made('demos')}}}]", tmp_path / "base"
    small = ("+policy.num_vlm_layers=2", "+policy.resize_imgs_with_padding=[64, 64]", "policy.num_steps=4")
    robowm("train-policy", "size=debug", "policy=smolvla", f"policy.vlm_model_name={vlm}", "policy.load_vlm_weights=false", *small, demos,
           f"output_dir={base}")  # fmt: skip
    robowm("improve", "size=debug", f"init_from={base}", demos, f"output_dir={tmp_path / 'better'}")
    robowm("train-dynamics", "size=debug", f"encoder={base}", demos, f"output_dir={tmp_path / 'dynamics'}")
    robowm("find-phases", "size=debug", f"encoder={base}", demos, f"output_dir={tmp_path / 'phases'}")
    robowm("guide", *ENV, *SHORT, "episodes=4", "keep_failures=true", "policy.guide.lower=null", "policy.guide.upper=null",
           "policy.guide.noisiest=0.6", f"policy.path={base}", f"policy.dynamics={tmp_path / 'dynamics'}",
           f"policy.phases={tmp_path / 'phases'}", f"output_dir={tmp_path / 'guided'}")  # fmt: skip
    assert read_artefact(tmp_path / "better")["inputs"]["init_from"] == read_artefact(base)["fingerprint"]
    guided = EpisodeStore.open(tmp_path / "guided")
    gate = read_sidecar(guided, "told")["gate"]
    assert gate.shape[1] == 4 and gate[:, 2:].any() and not gate[:, :2].any()  # times 1, 0.75 | 0.5, 0.25
    assert (np.concatenate([guided.rows(i, CONTROLLER) for i in range(len(guided))]) == Controller.GUIDED).any()


def test_a_missing_input_is_one_line(made, tmp_path, capfd):
    assert main(["train-policy", "size=debug", f"stores=[{{path: {tmp_path / 'nothing'}}}]", f"output_dir={tmp_path / 'out'}"]) == 2
    err = capfd.readouterr().err
    assert str(tmp_path / "nothing") in err
    assert len(err.strip().splitlines()) == 1


def test_a_camera_that_a_store_lacks_is_named(made, tmp_path, capfd):
    words = ["train-policy", "size=debug", f"stores=[{{path: {made('demos')}}}]", "policy.cameras=[wrist, top]"]
    assert main([*words, f"output_dir={tmp_path / 'out'}"]) == 2
    assert "top" in capfd.readouterr().err


def test_a_policy_given_as_a_world_model_is_refused(made, tmp_path, capfd):
    words = ["evaluate-world-model", "task=t", f"world_model.path={made('base')}", f"stores={{open_loop: {made('held_out')}}}"]
    assert main([*words, f"output_dir={tmp_path / 'out'}"]) == 2
    assert "is a 'policy', expected a 'world_model'" in capfd.readouterr().err


def test_guided_episodes_name_their_controllers_and_keep_the_gate(made):
    store = EpisodeStore.open(made("guided"))
    told = read_sidecar(store, "told")
    controller = np.concatenate([store.rows(i, CONTROLLER) for i in range(len(store))])
    assert len(store) == 4 and {meta.source.kind for meta in store.metas} == {"guided"}
    assert np.array_equal(controller == Controller.GUIDED, told["gate"].any(1)) and told["gate"].any()


def test_guidance_made_for_another_policy_is_refused(made, tmp_path, capfd):
    words = [*made.words("guided"), f"policy.path={made('improve')}", f"output_dir={tmp_path / 'out'}"]
    assert main([str(word) for word in words]) == 2
    assert "find phases for it" in capfd.readouterr().err


def test_every_weighting_is_written_beside_the_stores_and_read_by_training(made, tmp_path):
    made("weights")
    stores = [f"{{path: {made(name)}}}" for name in ("demos", "expert_rollouts")]
    for name in ("filtered", "iwr", "everything"):
        words = [f"critics={made('critics')}"] if name == "everything" else []
        robowm("weigh", f"weighting={name}", *words, f"stores=[{', '.join(stores)}]", f"output_dir={tmp_path / name}")
        assert read_artefact(tmp_path / name)["measured"]["effective_share"] > 0
    weighed = ", ".join(f"{store[:-1]}, weights: {name}}}" for store, name in zip(stores, ("habc", "everything"), strict=True))
    robowm("improve", "size=debug", f"init_from={made('base')}", f"stores=[{weighed}]", f"output_dir={tmp_path / 'better'}")
    assert {"store0.weights", "store1.weights"} < read_artefact(tmp_path / "better")["inputs"].keys()
    weight = read_sidecar(EpisodeStore.open(made("expert_rollouts")), "filtered")["weight"]
    assert weight.mean() == pytest.approx(1, abs=1e-5)


def test_a_person_takes_over_and_says_so_and_every_rival_trains_on_it(made, tmp_path):
    store = EpisodeStore.open(made("takeover"))
    controller = np.concatenate([store.rows(i, CONTROLLER) for i in range(len(store))])
    assert {meta.source.kind for meta in store.metas} == {"human"} and {Controller.HUMAN_RECOVERY} < set(controller.tolist())
    assert np.array_equal(read_sidecar(store, "told")["way"].shape, controller.shape)
    stores = [f"{{path: {made(name)}}}" for name in ("demos", "rollouts", "takeover")]
    robowm("train-critics", "size=debug", "critic=recap", f"encoder={made('base')}", f"stores=[{', '.join(stores)}]",
           f"output_dir={tmp_path / 'recap'}")  # fmt: skip
    for name, critics in (("iql", made("value_critics")), ("recap", tmp_path / "recap"), ("shown", None)):
        words = [f"critics={critics}"] if critics else []
        robowm("weigh", f"weighting={name}", *words, f"stores=[{', '.join(stores)}]", f"output_dir={tmp_path / f'weights_{name}'}")
    weighed = ", ".join(f"{entry[:-1]}, weights: recap, early_weights: shown}}" for entry in stores)
    words = [f"init_from={made('base')}", f"stores=[{weighed}]", "early_steps=1", f"output_dir={tmp_path / 'better'}"]
    robowm("improve", "size=debug", *words)
    assert {"store2.weights", "store2.early_weights"} < read_artefact(tmp_path / "better")["inputs"].keys()


def test_weighing_by_critics_without_critics_is_one_line(made, tmp_path, capfd):
    assert main(["weigh", f"stores=[{{path: {made('demos')}}}]", f"output_dir={tmp_path / 'out'}"]) == 2
    assert "give critics=" in capfd.readouterr().err


def test_a_bench_becomes_results_and_a_page(made, tmp_path):
    robowm("report", f"flywheel={made('bench')}", f"output_dir={tmp_path}")
    found = json.loads((tmp_path / "results.json").read_text())
    assert {row["task"] for row in found["rows"]} == {f"tabletop/pick_place:{name}" for name in ("open_loop", "counterfactual")}
    assert {(pair["a"], pair["b"]) for pair in found["pairs"]} >= {("rl", "base"), ("rl", "real_frames"), ("rl", "rl:zero_actions")}
    metrics = {row["metric"] for row in found["rows"] if row["arm"] == "rl"}
    assert {"psnr/wrist@mean", "psnr/external@free", "action_error/counterfactual", "seconds/chunk@first", "collapsed/long_roll"} <= metrics
    assert "Long rolls" in (tmp_path / "report.html").read_text()


def test_a_bench_against_diffusers_measures_speed_and_fidelity_of_both(made, tmp_path):
    words = ["bench", "suite=diffusers", "size=debug", "task=tabletop/pick_place", "seconds=0.5", "horizon=4", "episodes=2"]
    words += ["timing.updates=2", "timing.frames=8", "timing.turns=2", f"stores=[{{path: {made('demos')}}}]"]
    words += [f"held_out={{open_loop: {made('held_out')}}}", f"output_dir={tmp_path / 'bench'}"]
    robowm(*words)
    plan = json.loads((tmp_path / "bench" / "plan.json").read_text())
    assert set(plan) == {"robowm", "diffusers"} and min(plan.values()) >= 1
    first = (tmp_path / "bench" / "bench.json").read_text()
    robowm(*words)
    assert (tmp_path / "bench" / "bench.json").read_text() == first
    robowm("report", f"flywheel={tmp_path / 'bench'}", f"output_dir={tmp_path / 'report'}")
    found = json.loads((tmp_path / "report" / "results.json").read_text())
    rows = {(row["arm"], row["metric"]): row for row in found["rows"]}
    speeds = {arm: rows[arm, "fps/rollout"]["value"] for arm in plan}
    assert rows["diffusers", "ratio/rollout"]["n"] == 2 and min(speeds.values()) > 0
    assert {("robowm", "psnr/wrist@mean"), ("diffusers", "psnr/wrist@mean"), ("copy_last", "psnr/wrist@mean")} <= rows.keys()
    assert ("robowm", "diffusers") in {(pair["a"], pair["b"]) for pair in found["pairs"]}


def test_a_world_model_with_a_lag_is_measured_chunk_by_chunk_and_by_a_rolling_window(made, tmp_path):
    words = [
        "train-world-model",
        "size=debug",
        "world_model=sampled",
        "world_model.lag=1",
        "loss.own_levels=0.5",
        "loss.perceptual_weight=0",
    ]
    robowm(*words, f"stores=[{{path: {made('demos')}}}]", f"output_dir={tmp_path / 'wm'}")
    words = ["evaluate-world-model", "size=debug", "task=t/t", f"stores={{open_loop: {made('held_out')}}}", "horizon=8", "controls=[]"]
    found = {}
    for name, more in (("plain", []), ("rolling", ["world_model._target_=robowm.world_model.rolling_window.load_rolling_world_model"])):
        folder = tmp_path / name
        robowm(*words, *more, f"world_model.path={tmp_path / 'wm'}", f"arm={name}", f"output_dir={folder}")
        found[name] = {row["metric"]: row["value"] for row in json.loads((folder / "world_model.json").read_text())["rows"]}
    assert found["plain"].keys() == found["rolling"].keys() and found["plain"] != found["rolling"]


def test_counterfactual_actions_without_a_simulator_are_one_line(made, tmp_path, capfd):
    words = ["bench", "size=debug", "task=t/t", f"world_models={{a: {made('world_model')}}}", f"stores={{x: {made('held_out')}}}"]
    assert main([*words, "counterfactual=2", f"output_dir={tmp_path / 'out'}"]) == 2
    assert "give env=..." in capfd.readouterr().err


def test_evaluation_outside_its_seeds_is_refused(made, tmp_path, capfd):
    words = ["evaluate", *ENV, "arm=base", "actor=never_moves", "first_seed=50000", "episodes=2"]
    assert main([*words, f"output_dir={tmp_path / 'out'}"]) == 2
    assert "evaluation seeds lie in 100000..109999" in capfd.readouterr().err


def test_a_sweep_trains_one_policy_per_value(made, tmp_path):
    robowm(
        "improve",
        "-m",
        "size=debug",
        f"init_from={made('base')}",
        f"stores=[{{path: {made('demos')}}}]",
        "seed=1,2",
        f"output_dir={tmp_path}",
    )
    assert len({read_artefact(tmp_path / job)["fingerprint"] for job in ("0", "1")}) == 2


def test_the_report_shows_an_episode_of_a_store(made, tmp_path):
    robowm("report", f"store={made('demos')}", "episode=1", f"output_dir={tmp_path}")
    assert [path.stat().st_size > 1000 for path in tmp_path.glob("*.mp4")] == [True]


def test_import_reads_what_export_wrote(made, tmp_path):
    from robowm.data.lerobot import export_lerobot
    from robowm.data.store import EpisodeStore

    export_lerobot(EpisodeStore.open(made("demos")), tmp_path / "dataset", use_videos=False)
    robowm("import", f"root={tmp_path / 'dataset'}", f"output_dir={tmp_path / 'store'}")
    assert list(EpisodeStore.open(tmp_path / "store").lengths) == list(EpisodeStore.open(made("demos")).lengths)


def test_doctor_finds_what_the_tests_need(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("robowm.apps.checks.lpips", list)
    code = main(["doctor", f"output_dir={tmp_path}"])
    assert ("BROKEN" in capsys.readouterr().out) == (code == 2)


def test_doctor_says_what_to_install_where_nothing_renders(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("robowm.apps.checks.try_backend", lambda backend: f"lib{backend}.so is missing")
    assert main(["doctor", f"output_dir={tmp_path}"]) == 2
    out, err = capfd.readouterr()
    assert "BROKEN  rendering  egl: libegl.so is missing; osmesa: libosmesa.so is missing. Run: apt-get update && apt-get install" in out
    assert "rendering" in err
