"""What goes wrong while a robot is used, through the command lines: it is held, let go of in peace, and what was recorded stays."""

import json
import os
import signal
import time

import numpy as np
import pytest

from real_robot import collect, deploy
from real_robot.commands import main_of
from real_robot.labels import Event
from robowm.data.store import EpisodeStore
from tests.real_robot.fakes import Counting, FakeRobot, FakeTeleop, Script

WORDS = ["robot.type=fake", "task=wave", "fps=60", "max_steps=12"]
FREE = ["safety.workspace=null", "safety.velocity=null", "safety.acceleration=null"]


class Held(Script):
    """Notes what the robot was sent last, and that it is still connected, when it is asked to let go."""

    def let_go(self, why):
        assert self.arm.robot.is_connected
        self.why, self.last = why, self.arm.robot.sent[-1]


@pytest.fixture
def fakes(monkeypatch):
    """Return a robot, a teleoperator and an operator that the command lines will use."""
    robot, teleop, operator = FakeRobot(), FakeTeleop(), Held()
    monkeypatch.setattr("real_robot.setup.make_robot", lambda node: robot)
    monkeypatch.setattr("real_robot.setup.make_teleop", lambda node: teleop)
    monkeypatch.setattr("real_robot.operator.KeyboardOperator", lambda: operator)
    return robot, teleop, operator


def gone_after(calls, error, value):
    """Return a function that gives ``value()`` so many times and raises ``error`` from then on."""
    left = [calls]

    def call():
        left[0] -= 1
        if left[0] < 0:
            raise error
        return value()

    return call


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            ConnectionError("Failed to sync read\nno status packet"),
            2,
            "'fake_teleop' does not answer: Failed to sync read no status packet;",
        ),
        (RuntimeError("no pose"), 2, "'fake_teleop' does not answer: no pose; check its power and cable"),
        (ZeroDivisionError("a mistake of ours"), 1, "failed with ZeroDivisionError: a mistake of ours"),
    ],
)
def test_a_teleoperator_that_fails_leaves_the_robot_held_and_the_open_episode_set_aside(fakes, error, code, said, tmp_path, capfd):
    robot, teleop, operator = fakes
    teleop.get_action = gone_after(19, error, teleop.get_action)  # the first is asked for before the first episode
    operator.plan = {12: [Event.SUCCESS]}
    words = [*WORDS, *FREE, "episodes=2", f"output_dir={tmp_path}"]
    assert main_of(collect.APP, words) == code
    shown = capfd.readouterr().err.strip().splitlines()
    assert said in shown[-1] and operator.why in shown[-1].replace("failed with ZeroDivisionError: ", "")
    assert not robot.is_connected and operator.last == {"a.pos": 1.0, "gripper.pos": 0.5}
    assert len(EpisodeStore.open(tmp_path)) == 1 and not list(tmp_path.glob(".open/*"))
    (left,) = (tmp_path / "interrupted").iterdir()
    steps = (left / "controller").stat().st_size
    assert 3 < steps < 12 and json.loads((left / "facts.json").read_text())["seed"] == 1
    assert np.fromfile(left / "action", np.float32).reshape(-1, 2).tolist() == [[1.0, 0.5]] * steps
    teleop.get_action = FakeTeleop().get_action
    assert main_of(collect.APP, words) == 0 and len(EpisodeStore.open(tmp_path)) == 2


def test_a_policy_that_fails_leaves_the_robot_held(fakes, tmp_path, monkeypatch, capfd):
    robot, _, operator = fakes
    policy = Counting()
    act = policy.act
    policy.act = lambda *given: act(*given) if policy.plans < 3 else 1 / 0
    monkeypatch.setattr("real_robot.deploy.load", lambda *given: policy)
    words = [*WORDS, *FREE, "policy.path=p", "episodes=1", "max_steps=50", f"output_dir={tmp_path}"]
    assert main_of(deploy.APP, words) == 1
    assert "ZeroDivisionError: division by zero" in capfd.readouterr().err and operator.why == "division by zero"
    assert robot.sent[-1] == robot.sent[-2] == operator.last and not robot.is_connected


def test_a_robot_that_fails_is_one_line_too(fakes, tmp_path, capfd):
    robot, _, operator = fakes
    send = robot.send_action

    def lost(action):
        robot.deaf = len(robot.sent) >= 10
        return send(action)

    robot.send_action = lost
    assert main_of(collect.APP, [*WORDS, *FREE, "teleop.type=fake", "episodes=1", f"output_dir={tmp_path}"]) == 2
    assert "took no command: bus lost" in operator.why and "took no command: bus lost" in capfd.readouterr().err.strip().splitlines()[-1]


@pytest.fixture
def plain_signals():
    """As in a terminal, also where the tests run in the background, which ignores some."""
    usual = {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("plain_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_being_ended_or_hung_up_on_holds_the_robot_until_somebody_supports_it(fakes, number, tmp_path):
    robot, _, operator = fakes
    poll = operator.poll

    def ended(mode, step):
        if step == 5:
            os.kill(os.getpid(), number)
        return poll(mode, step)

    operator.poll = ended
    let_go, after = operator.let_go, []

    def twice(why):
        let_go(why)
        if number == signal.SIGHUP:
            os.kill(os.getpid(), number)  # the shell says it again
        after.append(why)

    operator.let_go = twice
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)]
    assert main_of(collect.APP, [*WORDS, *FREE, "teleop.type=fake", "episodes=1", f"output_dir={tmp_path}"]) == 130
    assert after == ["interrupted"] and operator.last == robot.sent[-1] and not robot.is_connected
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)] == before
    assert len(list((tmp_path / "interrupted").iterdir())) == 1


def test_episodes_that_are_held_again_and_again_end_with_the_reason(fakes, tmp_path, capfd):
    robot, _, _ = fakes
    robot.cameras, robot.latest_timestamp = {"front": robot}, None
    look = robot.get_observation

    def late():
        robot.latest_timestamp = time.perf_counter() - (0.4 if len(robot.sent) % 50 > 2 else 0.0)
        return look()

    robot.get_observation = late
    words = [*WORDS, *FREE, "teleop.type=fake", "safety.stale_s=0.2", "safety.hold_limit_s=0.1", "episodes=1"]
    assert main_of(collect.APP, [*words, f"output_dir={tmp_path}"]) == 2
    shown = capfd.readouterr()
    assert shown.out.count("held for 0.1 s (stale) and the episode is given up") == 3
    assert "given up, 3 in a row; check cameras" in shown.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("limit", "key", "largest"),
    [
        ("safety.workspace={a: [-1, 0.4]}", "workspace", lambda at: at.max() <= 0.4),
        ("safety.velocity=3", "velocity", lambda at: np.abs(np.diff(at)).max() <= 3 / 60 + 1e-6),
        ("safety.acceleration=60", "acceleration", lambda at: np.abs(np.diff(at, 2)).max() <= 60 / 60**2 + 1e-6),
    ],
)
def test_limits_of_the_command_line_hold_for_what_a_person_and_a_policy_want(fakes, limit, key, largest, tmp_path, monkeypatch):
    robot, _teleop, operator = fakes
    words = [*WORDS, limit, *(word for word in FREE if not word.startswith(f"safety.{key}")), "episodes=1", "max_steps=20"]
    monkeypatch.setattr("real_robot.deploy.load", lambda *given: Counting(values=[0.8]))
    for app, more in ((collect.APP, "teleop.type=fake"), (deploy.APP, "policy.path=p")):
        robot.__init__()
        operator.plan = {}
        assert main_of(app, [*words, more, f"output_dir={tmp_path / app.verb}"]) == 0
        sent = np.array([[0.0, 0.0], *([action["a.pos"], action["gripper.pos"]] for action in robot.sent)])
        assert largest(sent[:, 0]) and sent[:, 0].max() > 0.3  # it moved, within the limit


@pytest.mark.parametrize("event", [Event.QUIT, Event.DISCARD])
def test_an_episode_that_is_thrown_away_is_not_set_aside(fakes, event, tmp_path):
    _, _, operator = fakes
    operator.plan = {5: [event]}
    prepare, scenes = operator.prepare, []

    def twice(seed):
        scenes.append(seed)
        prepare(seed)
        operator._left = {5: [event]} if len(scenes) == 1 else {5: [Event.SUCCESS]}

    operator.prepare = twice
    code = main_of(collect.APP, [*WORDS, *FREE, "episodes=1", f"output_dir={tmp_path}"])
    assert (code, len(scenes)) == ((130, 1) if event == Event.QUIT else (0, 2))
    assert not list(tmp_path.glob(".open/*")) and not list(tmp_path.glob("interrupted/*"))
