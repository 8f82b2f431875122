"""The scripts through their command lines, on the simulated robot: labels, resuming, kill -9, lerobot's format, errors in one line."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from real_robot import collect, commands, deploy, replay
from real_robot.commands import main_of, opened
from robowm.apps.cli import main as robowm
from robowm.apps.harness import RESERVED, config_folder
from robowm.apps.help import compose_config
from robowm.artefacts import read_artefact
from robowm.data.check import check
from robowm.data.lerobot import exported, run_lerobot
from robowm.data.sidecar import read_sidecar
from robowm.data.spec import CONTROLLER, REWARD, SEGMENT
from robowm.data.store import EpisodeStore
from robowm.habc import credit
from robowm.types import Controller

ROOT = Path(__file__).resolve().parents[2]
SENTENCE = "put the red cube into the blue tray"
ROBOT = ["size=debug", "robot=sim", "robot.speed=6", "operator=scripted", "safety.stale_s=3"]  # patient: a test machine is busy


def run(app, *words):
    assert main_of(app, [str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real") / "demos"
    run(collect.APP, *ROBOT, "episodes=3", f"output_dir={folder}", f"lerobot_dir={folder.parent / 'lerobot'}")
    return folder


@pytest.fixture(scope="module")
def base(demos):
    folder = demos.parent / "base"
    assert robowm(["train-policy", "size=debug", f"stores=[{{path: {demos}}}]", f"output_dir={folder}"]) == 0
    return folder


@pytest.fixture(scope="module")
def rollouts(base):
    folder = base.parent / "rollouts"
    words = [
        f"policy.path={base}",
        "operator.guarded=1",
        "operator.patience_s=0.8",
        "max_steps=110",
        f"familiar_to={base.parent / 'demos'}",
    ]
    run(collect.APP, *ROBOT, *words, "operator.rewinds=0.5", "episodes=3", f"output_dir={folder}")
    return folder


def test_demonstrations_are_a_store_as_every_verb_reads_it(demos):
    store = EpisodeStore.open(demos)
    assert [meta.source.kind for meta in store.metas] == ["demo"] * 3 and [meta.source.seed for meta in store.metas] == [0, 1, 2]
    assert [(meta.success, meta.judged_by, meta.task) for meta in store.metas] == [(1.0, "simulator", SENTENCE)] * 3
    episode = store.episode(0)
    assert set(episode.controller) == {Controller.DEMO} and not episode.segment.any() and episode.reward.sum() == episode.reward[-1] == 1
    assert not [finding for finding in check(store) if finding.level == "error"]
    assert store.spec.state_names == store.spec.action_names == ["x.pos", "y.pos", "z.pos", "yaw.pos", "gripper.pos"]
    led, after = episode.action[:, 0] - episode.state[:-1, 0], np.diff(episode.state[:, 0])
    assert np.corrcoef(led, after)[0, 1] > 0.3  # an action moves the robot to the row after it
    assert set(read_sidecar(store, "quality")["quality"]) == {5.0}


def test_each_episode_has_a_line_with_rates_and_what_was_sent(demos):
    lines = [json.loads(line) for line in (demos / "collection.jsonl").read_text().splitlines()]
    store = EpisodeStore.open(demos)
    assert [line["episode"] for line in lines] == [0, 1, 2]
    assert [line["commands"]["demo"] for line in lines] == list(store.lengths)  # no label was dropped
    assert all(line["achieved_hz"] > 1 and line["observation_age_ms"]["n"] for line in lines)


def test_the_same_in_lerobots_format_comes_back_whole(demos, tmp_path):
    run_lerobot(root=demos.parent / "lerobot", output_dir=tmp_path / "back")
    back, store = EpisodeStore.open(tmp_path / "back"), EpisodeStore.open(demos)
    assert [meta.content for meta in back.metas] == [meta.content for meta in store.metas]


def test_takeovers_are_marked_apart_and_lerobot_gets_them_as_interventions(rollouts, tmp_path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from robowm.data.lerobot import export_lerobot

    store = EpisodeStore.open(rollouts)
    kinds, controllers = [meta.source.kind for meta in store.metas], [store.rows(i, CONTROLLER) for i in range(3)]
    assert set(kinds) == {"human"} and [meta.source.seed for meta in store.metas] == [10000, 10001, 10002]
    for controller in controllers:
        assert controller[0] == Controller.POLICY and {Controller.HUMAN_RECOVERY} <= set(controller)
    assert any(Controller.HUMAN_CORRECTION in controller for controller in controllers)
    export_lerobot(store, tmp_path / "set", use_videos=False)
    found = np.array(LeRobotDataset("local/dataset", tmp_path / "set").hf_dataset["intervention"], bool)
    human = [np.isin(c, (Controller.HUMAN_RECOVERY, Controller.HUMAN_CORRECTION)) for c in controllers]
    assert found.tolist() == [bool(x) for h in human for x in [*h, h[-1]]]


def test_habc_takes_what_was_collected(demos, rollouts, tmp_path):
    store = EpisodeStore.open(rollouts)
    for i, meta in enumerate(store.metas):
        controller = store.rows(i, CONTROLLER)
        found = credit.assign(meta, controller, store.rows(i, SEGMENT), store.rows(i, REWARD), chunk=8)
        human = np.isin(controller, credit.HUMAN)
        assert (found.role[human] == credit.Role.HUMAN).all() and np.isnan(found.outcome[human]).all()
        assert (found.until_takeover[: human.argmax()] == np.arange(human.argmax(), 0, -1)).all()
        assert (found.timed[human] == (meta.success == 1)).all() and set(found.role[~human]) <= {credit.Role.SUCCESS, credit.Role.FAILURE}
    stores = f"stores=[{{path: {demos}}}, {{path: {rollouts}}}]"
    assert robowm(["weigh", "size=debug", "weighting=sirius", stores, f"output_dir={tmp_path / 'weights'}"]) == 0
    assert len(read_sidecar(store, "sirius")["weight"]) == store.lengths.sum()


def test_a_finished_collection_returns_at_once_and_another_request_is_refused(demos, capfd):
    began = time.monotonic()
    run(collect.APP, *ROBOT, "episodes=3", f"output_dir={demos}")
    assert time.monotonic() - began < 20
    assert main_of(collect.APP, [*ROBOT, "episodes=3", "max_steps=77", f"output_dir={demos}"]) == 2
    assert "max_steps" in capfd.readouterr().err


def test_a_finished_collection_grows_and_does_not_shrink(tmp_path, capfd):
    words = [*ROBOT, f"output_dir={tmp_path / 'store'}"]
    run(collect.APP, *words, "episodes=1", f"lerobot_dir={tmp_path / 'one'}")
    first = EpisodeStore.open(tmp_path / "store")
    run(collect.APP, *words, "episodes=1", f"lerobot_dir={tmp_path / 'one'}")  # as a run that was killed after its export would
    run(collect.APP, *words, "episodes=1", f"lerobot_dir={tmp_path / 'late'}")
    assert exported(tmp_path / "late") == exported(tmp_path / "one") == [meta.to_json() for meta in first.metas]
    (tmp_path / "other").mkdir()
    assert main_of(collect.APP, [*words, "episodes=2", f"lerobot_dir={tmp_path / 'other'}"]) == 2
    assert "other exists and holds something else" in capfd.readouterr().err
    assert read_artefact(tmp_path / "store", "store")["episodes"] == 1  # still finished
    run(collect.APP, *words, "episodes=2", f"lerobot_dir={tmp_path / 'one'}")
    store = EpisodeStore.open(tmp_path / "store")
    assert store.metas[0] == first.metas[0] and [meta.source.seed for meta in store.metas] == [0, 1]
    assert read_artefact(store.path, "store")["fingerprint"] == store.fingerprint() != first.fingerprint()
    assert len(read_sidecar(store, "quality")["quality"]) == store.lengths.sum() and len(exported(tmp_path / "one")) == 2
    assert len(exported(tmp_path / "one_1_episodes")) == 1  # somebody may have worked on it
    assert main_of(collect.APP, [*words, "episodes=1"]) == 2
    assert "holds 2 episodes, episodes=1 asks for fewer" in capfd.readouterr().err


def lines_of(folder):
    path = folder / "collection.jsonl"
    return path.read_text().splitlines() if path.is_file() else []


def test_kill_9_costs_the_open_episode_alone_and_the_same_command_goes_on(tmp_path):
    folder = tmp_path / "killed"
    words = [sys.executable, "-m", "real_robot.collect", *ROBOT, "episodes=3", f"output_dir={folder}"]
    process = subprocess.Popen(
        words, cwd=ROOT, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120

    def writing():
        return any(path.stat().st_size > 5 for path in folder.glob(".open/*/controller"))

    while not (list(folder.glob("episodes/*.zip")) and writing()):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stored = len(EpisodeStore.open(folder))
    assert 1 <= stored <= 3 and len(lines_of(folder)) - stored in (0, 1)
    run(collect.APP, *ROBOT, "episodes=3", f"output_dir={folder}")
    store = EpisodeStore.open(folder)
    assert [meta.source.seed for meta in store.metas] == [0, 1, 2] and not list(folder.glob(".open/*"))
    left = [path for path in (folder / "interrupted").glob("*") if path.is_dir()]
    assert len(left) == 1 and (left[0] / "controller").stat().st_size > 5
    assert not [finding for finding in check(store) if finding.level == "error"]


def test_deploy_writes_outcomes_and_latencies(base, tmp_path):
    for name in ("blend", "real_time"):
        words = [f"policy.path={base}", f"chunking={name}", "episodes=2", "max_steps=24", "purpose=tuning", "task_name=real_robot/sim"]
        run(deploy.APP, *ROBOT, *words, f"output_dir={tmp_path / name}")
        summary = json.loads((tmp_path / name / "evaluation.json").read_text())
        assert {row["metric"] for row in summary["rows"]} >= {"success"} and summary["rows"][0]["n"] == 2
        latency = json.loads((tmp_path / name / "latency.json").read_text())
        assert latency["inference_ms"]["n"] > 2 and latency["achieved_hz"]["n"] == 2 and latency["ticks"] >= 48
        lines = [json.loads(line) for line in (tmp_path / name / "episodes.jsonl").read_text().splitlines()]
        assert [line["seed"] for line in lines] == [50000, 50001]


def test_replay_goes_where_the_episode_went(demos, tmp_path):
    run(replay.APP, *ROBOT, f"store={demos}", "episode=1", f"output_dir={tmp_path}")
    report = json.loads((tmp_path / "replay.json").read_text())
    store = EpisodeStore.open(demos)
    assert report["steps"] == store.lengths[1]
    reach = np.ptp(store.episode(1, []).state, axis=0)
    assert all(error < max(0.2 * span, 0.01) for error, span in zip(report["error"].values(), reach, strict=True))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["robot.taks=push"], "robot.taks is no key of 'robowm_sim'; did you mean 'task'"),
        (
            ["robot.type=robowm_smi", "task=t", "safety.workspace=null", "safety.velocity=1", "safety.acceleration=1"],
            "did you mean 'robowm_sim'",
        ),
        (["robot.faults.drop=2"], "robot.faults.drop=2"),
        (["robot.speed=0"], "robot.speed=0.0; it must be a number above 0"),
        (["robot.camera_hz=-1"], "robot.camera_hz=-1.0; it must be a number above 0"),
        (["robot.views=[wirst]"], "robot.views has 'wirst'; did you mean 'wrist'"),
        (["safety.velocity={elbow: 3}"], "unknown key 'safety.velocity.elbow'"),
        (["safety.stale_s=0"], "safety.stale_s=0"),
        (["teleop=none"], "nobody would move the robot"),
        (["teleop=so101_leader", "teleop.port=/dev/nowhere"], "pip install -e '.[robots]'"),
        (["robot.type=so101_follower", "robot.port=/dev/nowhere", "robot.cameras={}", "task=t"], "pip install -e '.[robots]'"),
        (["operator.guarded=2"], "operator.guarded=2"),
        (["opperator=scripted"], "opperator"),
        (["view=true", "robot.speed=6"], "pip install rerun-sdk"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_one_line(words, said, tmp_path, capfd):
    assert main_of(collect.APP, ["operator=scripted", "episodes=1", f"output_dir={tmp_path}", *words]) == 2
    err = [line for line in capfd.readouterr().err.strip().splitlines() if "real_robot.collect" in line]
    assert said in err[-1]


def test_replay_says_which_episodes_there_are(demos, tmp_path, capfd):
    for episode, said in (("1.5", "holds 3 episodes, numbered 0 to 2"), ("3", "episode=3;")):
        assert main_of(replay.APP, [*ROBOT, f"store={demos}", f"episode={episode}", f"output_dir={tmp_path}"]) == 2
        assert said in capfd.readouterr().err.strip().splitlines()[-1]


def test_replay_asks_for_no_task(tmp_path, capfd):
    words = [
        "robot.type=so101_follower",
        "robot.port=/dev/nowhere",
        "robot.cameras={}",
        f"store={tmp_path}",
        f"output_dir={tmp_path / 'out'}",
    ]
    assert main_of(replay.APP, words) == 2
    assert "no zarr.json" in capfd.readouterr().err


def test_a_type_chooses_its_file_and_its_keys_are_lerobots():
    assert opened(["robot.type=so101_follower", "robot.port=/dev/x"]) == [
        "robot=so101_follower",
        "++robot.type=so101_follower",
        "++robot.port=/dev/x",
    ]
    assert opened(["robot.type=koch_follower"])[0] == "robot=any" and opened(["robot=any", "robot.type=koch_follower"])[0] == "robot=any"


@pytest.mark.parametrize("module", [collect, deploy, replay])
@pytest.mark.parametrize("robot", ["sim", "so101_follower", "any"])
def test_keys_are_the_keywords_of_run(module, robot):
    config = compose_config(module.APP.config_name, config_folder(), [f"robot={robot}"])
    keys = {key for key in config if key not in (*RESERVED, "hydra", *config.get("helpers", ()))} | {"output_dir"}
    parameters = inspect.signature(module.run).parameters
    assert keys <= set(parameters)
    assert {name for name, p in parameters.items() if p.default is p.empty} <= keys


def test_help_says_what_a_script_does(capsys):
    for module in (collect, deploy, replay):
        assert main_of(module.APP, ["--help"]) == 0
        out = capsys.readouterr().out
        assert f"python -m real_robot.{module.APP.verb}: {module.APP.about}" in out and "robot=sim" in out
    assert commands.App("x", "y:z").program == "real_robot"
