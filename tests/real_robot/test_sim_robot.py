"""The simulated robot: lerobot's interface, lerobot's own commands, what can go wrong, and a keyboard."""

import itertools
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from real_robot import collect
from real_robot.arm import Arm
from real_robot.clock import Clock
from real_robot.commands import main_of
from real_robot.devices import make_robot, make_teleop, spec_of
from real_robot.keys import Keys, split
from real_robot.labels import Event, Mode
from real_robot.operator import KeyboardOperator
from real_robot.safety import Limits, Why
from real_robot.sim_robot import Faults, RobowmKeyboard, RobowmKeyboardConfig
from real_robot.sim_robot.faults import noisy, stalls
from real_robot.sim_robot.world import world_of
from robowm.data.lerobot import run_lerobot
from robowm.data.store import EpisodeStore
from robowm.errors import UserError
from robowm.types import Controller

ROOT = Path(__file__).resolve().parents[2]


def robot(**keys):
    return make_robot({"type": "robowm_sim", "image_size": 32, **keys})


@pytest.fixture
def connected():
    made = []

    def connect(**keys):
        device = robot(**keys)
        device.connect()
        made.append(device)
        return device

    yield connect
    for device in made:
        if device.is_connected:
            device.disconnect()


def test_it_speaks_lerobots_language(connected):
    device = connected()
    found = device.get_observation()
    assert found.keys() == device.observation_features.keys()
    assert all(found[name].shape == shape for name, shape in device.observation_features.items() if isinstance(shape, tuple))
    sent = device.send_action({name: found[name] for name in device.action_features})
    assert sent.keys() == device.action_features.keys() and device.is_calibrated
    device.disconnect()
    assert not device.is_connected
    with pytest.raises(ConnectionError):
        device.get_observation()


def test_a_start_is_a_function_of_its_seed_and_it_goes_where_it_is_told(connected):
    device = connected(speed=4.0, views=[])
    device.reset_scene(3)
    first = device.world.truth()
    device.reset_scene(4)
    assert not np.allclose(first[1], device.world.truth()[1])
    device.reset_scene(3)
    assert np.allclose(first[0], device.world.truth()[0], atol=2e-3) and np.allclose(first[1][7:], device.world.truth()[1][7:])
    goal = {"x.pos": 0.05, "y.pos": -0.05, "z.pos": 0.1, "yaw.pos": 0.3, "gripper.pos": 0.0}
    device.send_action(goal)
    until = time.monotonic() + 10
    while np.abs(device.world.state() - list(goal.values())).max() > 0.02:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_commands_arrive_late_and_states_are_old_when_asked_for(connected):
    device = connected(views=[], faults={"command_latency_s": 0.5, "state_latency_s": 0.3})
    before = device.world.state()
    device.send_action(dict(zip(device.action_features, [*(before[:2] + 0.05), *before[2:]], strict=True)))
    sent = device.world.clock.now()
    moved = {}
    while len(moved) < 2:
        now = device.world.clock.now() - sent
        if "truth" not in moved and np.abs(device.world.truth()[0][:2] - before[:2]).max() > 0.005:
            moved["truth"] = now
        if "seen" not in moved and np.abs(device.world.state()[:2] - before[:2]).max() > 0.005:
            moved["seen"] = now
        assert now < 10
        time.sleep(0.002)
    assert moved["truth"] >= 0.5 and moved["seen"] >= moved["truth"] + 0.15


def test_noise_and_stalls_are_drawn_as_asked():
    rng = np.random.default_rng(0)
    gray = np.full((64, 64, 3), 128, np.uint8)
    assert noisy(gray, 10.0, rng).std() == pytest.approx(10.0, rel=0.1) and noisy(gray, 0.0, rng) is gray
    windows = stalls(1000.0, 10.0, 2.0, rng)
    assert 60 < len(windows) < 110 and all(end - start == pytest.approx(2.0) for start, end in windows)
    assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(windows)) and not stalls(100.0, 0, 2, rng)
    with pytest.raises(UserError, match=r"drop=1\.5"):
        Faults(drop=1.5)


def test_lost_frames_come_less_often_and_a_stalled_camera_holds_the_arm(connected):
    device = robot(views=["external"], faults={"drop": 0.8})
    spec = spec_of(device, fps=30, image_size=None, gripper=None)
    with Arm(device, spec, Limits.of(spec.action_names), stale_s=0.4, clock=Clock()) as arm:
        stamps = set()
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            stamps.add(device.cameras["external"].latest_timestamp)
            time.sleep(0.005)
        assert len(stamps) <= 16  # of 30
        device.film.stalled["external"] = True
        time.sleep(0.5)
        seen = arm.fetch(0.1)
        assert arm.send(np.zeros(5), seen).command.why == {Why.STALE}
        device.film.stalled["external"] = False
        assert not arm.send(np.zeros(5), arm.fresh(arm.clock.now())).command.held


def test_an_emergency_stop_lets_the_hand_stand(connected):
    device = robot(views=[])
    spec = spec_of(device, fps=30, image_size=None, gripper=None)
    with Arm(device, spec, Limits.of(spec.action_names), stale_s=0.4, clock=Clock()) as arm:
        seen = arm.fresh()
        arm.send(np.array([0.1, 0.1, 0.05, 1.0, 0.0]), seen)
        time.sleep(0.1)
        arm.fetch(0.1)
        assert arm.clock.now() - device.world.moved_at < 0.05
        stop = arm.stop("test")
        time.sleep(0.3)
        device.world.catch_up()
        assert device.world.moved_at <= stop.at + 0.1  # from the set-point back to where the hand was: a tenth of a second at most


def test_an_emergency_stop_comes_through_right_after_a_slow_read(connected):
    device = robot(views=[], faults={"read_s": 0.4})
    spec = spec_of(device, fps=30, image_size=None, gripper=None)
    with Arm(device, spec, Limits.of(spec.action_names), stale_s=9.0, clock=Clock()) as arm:
        arm.send(np.array([0.1, 0.1, 0.05, 1.0, 0.0]), arm.fetch(0.0))  # begins a read
        asking = threading.Thread(target=lambda: [arm.fetch(1.0) for _ in range(3)])
        asking.start()
        time.sleep(0.1)
        pressed = arm.clock.now()
        assert 0.05 < arm.stop("test").at - pressed < 0.7
        asking.join()


# ------------------------------------------------------------------ lerobot's own commands


def lerobot(command, *words):
    found = f"import sys; from lerobot.scripts.lerobot_{command} import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", found, *map(str, words)], cwd=ROOT, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


SIM = ["--robot.discover_packages_path=real_robot.sim_robot", "--robot.type=robowm_sim", "--robot.image_size=32"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    root = tmp_path_factory.mktemp("lerobot") / "set"
    words = ["--teleop.type=robowm_expert", "--dataset.repo_id=local/demos", f"--dataset.root={root}", "--dataset.single_task=pick"]
    words += [
        "--dataset.num_episodes=2",
        "--dataset.episode_time_s=3",
        "--dataset.reset_time_s=0",
        "--dataset.fps=10",
        "--dataset.video=false",
    ]
    lerobot("record", *SIM, *words, "--dataset.push_to_hub=false", "--play_sounds=false", "--teleop.sets_up_scenes=true", "--robot.speed=2")
    return root


def test_lerobot_record_runs_on_it_and_we_read_what_it_wrote(recorded, tmp_path):
    run_lerobot(root=recorded, output_dir=tmp_path / "store")
    store = EpisodeStore.open(tmp_path / "store")
    assert len(store) == 2 and store.spec.action_names == ["x.pos", "y.pos", "z.pos", "yaw.pos", "gripper.pos"]
    assert np.ptp(store.episode(0, []).state[:, :3], axis=0).max() > 0.02


def test_lerobot_rollout_runs_our_policy_on_it(recorded, tmp_path):
    from robowm.apps.cli import main as robowm

    run_lerobot(root=recorded, output_dir=tmp_path / "store")
    assert robowm(["train-policy", "size=debug", f"stores=[{{path: {tmp_path / 'store'}}}]", f"output_dir={tmp_path / 'base'}"]) == 0
    words = ["--plugins.discover_packages_path=robowm.policy.lerobot_small", f"--policy.path={tmp_path / 'base' / 'pretrained_model'}"]
    said = lerobot(
        "rollout", *SIM, *words, "--task=pick", "--duration=2", "--fps=10", "--play_sounds=false", "--robot.views=[external,wrist]"
    )
    assert "Rollout finished" in said


def test_lerobot_finds_the_plug_in_by_itself_once_it_is_installed(tmp_path):
    plugin = ROOT / "plugins" / "lerobot_robot_robowm"
    info = tmp_path / "lerobot_robot_robowm-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lerobot_robot_robowm\nVersion: 0.1.0\n")
    code = "from lerobot.utils.import_utils import register_third_party_plugins as r; r(); from lerobot.robots import RobotConfig; "
    code += "print('robowm_sim' in RobotConfig.get_known_choices())"
    path = os.pathsep.join(map(str, (tmp_path, plugin, ROOT)))
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


# ------------------------------------------------------------------ keyboards


@pytest.fixture
def terminal():
    master, slave = pty.openpty()
    keys = Keys(slave)
    yield lambda text: os.write(master, text.encode()), keys
    keys.close()
    os.close(master)
    os.close(slave)


def wait_for(condition):
    until = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_keys_have_names():
    assert split("a \n\x1b[A\x1bz") == ["a", "space", "enter", "up", "esc", "z"]
    with pytest.raises(UserError, match="there is none here"):
        Keys(os.open(os.devnull, os.O_RDONLY))


def test_a_keyboard_moves_targets_within_bounds_once_it_knows_the_pose(terminal):
    press, keys = terminal
    teleop = RobowmKeyboard(RobowmKeyboardConfig(), keys)
    teleop.connect()
    with pytest.raises(RuntimeError, match="send_feedback comes before"):
        teleop.get_action()
    teleop.send_feedback({"x.pos": 0.0, "y.pos": 0.0, "z.pos": 0.1, "yaw.pos": 0.0, "gripper.pos": 0.0})
    press("ddd" + "s" + "p" * 9 + "?")
    wait_for(lambda: teleop.get_action()["gripper.pos"] == 1.0)
    action = teleop.get_action()
    assert action["x.pos"] == pytest.approx(0.024) and action["y.pos"] == pytest.approx(-0.008) and action["z.pos"] == 0.1
    assert make_teleop({"type": "robowm_keyboard"}).name == "robowm_keyboard"


class Recorder:
    def __init__(self):
        self.stopped = []

    def stop(self, reason):
        self.stopped.append(reason)


def test_a_person_at_the_keyboard_says_events_holds_the_key_and_stops(terminal):
    press, keys = terminal
    operator, arm = KeyboardOperator(keys), Recorder()
    operator.open(arm)
    operator.prepare(0)
    press("\n")
    heard = []
    wait_for(lambda: heard.extend(operator.poll(Mode.DEMO, 0)) or heard)
    assert heard == [Event.READY] and not operator.holding()
    press(" \nb4yh")
    heard = []
    wait_for(lambda: heard.extend(operator.poll(Mode.POLICY, 1)) or len(heard) >= 5)
    assert heard == [Event.TAKE_OVER, Event.CORRECT, Event.REWIND, Event.QUALITY_4, Event.SUCCESS]
    wait_for(operator.holding)
    assert not operator.holding() and not arm.stopped
    press("\x1b")
    wait_for(lambda: arm.stopped == ["key esc"])
    waiting = threading.Thread(target=operator.let_go, args=("emergency stop",))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()  # the motors hold until somebody supports the arm
    press("\n")
    waiting.join(5)
    assert not waiting.is_alive()


def test_a_terminal_that_is_gone_is_an_emergency_stop():
    master, slave = pty.openpty()
    keys = Keys(slave)
    operator, arm = KeyboardOperator(keys), Recorder()
    operator.open(arm)
    operator.prepare(0)
    os.write(master, b"\xe1\xff")  # what is no text is no key, and nobody hung up
    time.sleep(0.05)
    os.write(master, b"\n")
    wait_for(lambda: operator.poll(Mode.DEMO, 0) == [Event.READY])
    assert not arm.stopped
    os.close(master)
    wait_for(lambda: arm.stopped == ["the terminal is gone"])
    keys.close()
    os.close(slave)


# ------------------------------------------------------------------ lerobot's SO-101 classes on a fake bus


class FakeBus:
    """Motors that are at once where they are told to be; leader and follower each have their own."""

    def __init__(self, port, motors, calibration):
        self.port, self.motors, self.is_connected, self.is_calibrated = port, motors, False, True
        self.place = dict.fromkeys(motors, 30.0 if "leader" in port else 0.0)
        self.torque = []
        if "follower" in port:
            FakeBus.follower = self

    def connect(self):
        self.is_connected = True

    def disconnect(self, *_):
        self.is_connected = False

    def sync_read(self, name, num_retry=0):
        return dict(self.place)

    def sync_write(self, name, values):
        if "leader" not in self.port:
            self.place.update(values)

    def enable_torque(self):
        self.torque.append(True)

    def disable_torque(self):
        self.torque.append(False)

    def configure_motors(self):
        pass

    def write(self, *_):
        pass

    def torque_disabled(self):
        import contextlib

        return contextlib.nullcontext()


def test_an_so101_pair_is_collected_from_through_lerobots_own_classes(tmp_path, monkeypatch):
    for module in ("lerobot.robots.so_follower.so_follower", "lerobot.teleoperators.so_leader.so_leader"):
        monkeypatch.setattr(f"{module}.FeetechMotorsBus", FakeBus)
    monkeypatch.setattr("real_robot.operator.KeyboardOperator", OneSecond)
    words = ["robot.type=so101_follower", "robot.port=/dev/follower", "robot.cameras={}", "teleop.type=so101_leader"]
    words += ["teleop.port=/dev/leader", "task=wave", "episodes=1", f"output_dir={tmp_path / 'demos'}"]
    assert main_of(collect.APP, words) == 0
    episode = EpisodeStore.open(tmp_path / "demos").episode(0)
    assert set(episode.controller) == {Controller.DEMO} and episode.task == "wave" and len(episode) == 30
    steps = np.abs(np.diff(episode.action[:, 0]))
    assert episode.action[-1, 0] > 10 and steps.max() <= 120 / 30 + 1e-3  # the follower slides to the leader within its velocity limit
    assert EpisodeStore.open(tmp_path / "demos").spec.gripper == (100.0, 0.0)
    assert FakeBus.follower.place["shoulder_pan"] == pytest.approx(0.0, abs=0.1)  # it went home before it was let go


class OneSecond:
    """A person who ends an episode after 30 steps."""

    judge = "human"

    def open(self, arm):
        pass

    def prepare(self, seed):
        pass

    def poll(self, mode, step):
        return [Event.READY] if step == 0 else [Event.SUCCESS] if step == 30 else []

    def time_is_up(self):
        return [Event.FAILURE]

    def holding(self):
        return True

    def let_go(self, why):
        pass

    def close(self):
        assert world_of("nobody") is None
