"""Episodes: who has control, what is recorded, plans, rewinds, rates. On a fake robot with fake people."""

import time

import numpy as np
import pytest

from real_robot.arm import Arm
from real_robot.chunks import joined, prefix_weights
from real_robot.clock import Clock
from real_robot.labels import Event, Mode, next_mode, quality_of, rewards, segments
from real_robot.pilots import Blend, PolicyPilot, TeleopPilot
from real_robot.rates import Pace, achieved_hz, camera_rate, missed
from real_robot.rewind import Familiar, path_back, rewind_to
from real_robot.safety import DeadMan, Limits
from real_robot.session import Crew, Rules, Session, Stopped
from robowm.errors import UserError
from robowm.types import Controller
from tests.real_robot.fakes import Counting, FakeRobot, FakeTeleop, FakeWheels, Script, spec


class Kept:
    def __init__(self):
        self.seen, self.action, self.controller = [], [], []

    def add(self, seen, action, controller):
        self.seen.append(seen)
        self.action.append(action)
        self.controller.append(int(controller))


def play(
    operator,
    policy=None,
    teleop=None,
    *,
    fps=60.0,
    max_steps=30,
    rewind_steps=5,
    dead_man=False,
    dead_man_s=0.3,
    limits=None,
    robot=None,
    stale_s=1.0,
):
    """Play one episode and return what was recorded, what happened and the robot."""
    robot, kept = robot or FakeRobot(), Kept()
    made = spec(robot, fps)
    pilot = None if policy is None else PolicyPilot(policy, Blend(width=0), "", 2)
    person = None if teleop is None else TeleopPilot(teleop, made)
    crew = Crew(operator, person, pilot, DeadMan(dead_man, dead_man_s))
    rules = Rules(max_steps=max_steps, rewind_steps=rewind_steps, hold_limit_s=0.5)
    try:
        with Arm(robot, made, limits or Limits.of(made.action_names), stale_s=stale_s, clock=Clock()) as arm:
            operator.open(arm)
            session = Session(arm, crew, rules)
            assert session.prepare(0, None)
            return kept, session.play(kept, np.random.default_rng(0)), robot
    finally:
        if pilot is not None:
            pilot.close()


def test_a_demonstration_is_the_persons():
    kept, played, _ = play(Script({10: [Event.QUALITY_4, Event.SUCCESS]}), teleop=FakeTeleop((0.7, 0.2)))
    assert set(kept.controller) == {Controller.DEMO} and played.steps == len(kept.action) == 10
    assert played.end == Event.SUCCESS and played.quality == 4
    assert np.allclose(kept.action, [0.7, 0.2])


def test_recovery_and_correction_are_marked_apart_and_control_is_given_back():
    said = {8: [Event.TAKE_OVER], 14: [Event.CORRECT], 20: [Event.TAKE_OVER], 26: [Event.SUCCESS]}
    policy = Counting()
    kept, played, _ = play(Script(said), policy, FakeTeleop((5.0, 5.0)))
    parts = [Controller.POLICY] * 8 + [Controller.HUMAN_RECOVERY] * 6 + [Controller.HUMAN_CORRECTION] * 6 + [Controller.POLICY] * 6
    assert kept.controller == parts
    assert segments(np.array(kept.controller, np.int8)).tolist() == [0] * 8 + [1] * 6 + [2] * 6 + [3] * 6
    human = np.array(kept.controller) != Controller.POLICY
    assert (np.array(kept.action)[human] == 5.0).all() and (np.array(kept.action)[~human] < 5.0).all()
    assert played.commands == {Controller.POLICY: 14, Controller.HUMAN_RECOVERY: 6, Controller.HUMAN_CORRECTION: 6}
    assert policy.starts >= 2  # it began afresh when it had control again


def test_a_leader_that_can_be_driven_follows_the_robot_until_its_person_takes_over():
    leader = FakeTeleop((0.5, 0.5))
    leader.feedback_features = leader.action_features
    leader.torque, leader.fed = [], []
    leader.enable_torque, leader.disable_torque = (lambda: leader.torque.append(True)), (lambda: leader.torque.append(False))
    leader.send_feedback = leader.fed.append
    play(Script({6: [Event.TAKE_OVER], 10: [Event.FAILURE]}), Counting(), leader)
    assert leader.torque == [True, False] and len(leader.fed) >= 7 and leader.fed[-1].keys() == {"a.pos", "gripper.pos"}


def test_a_rewind_drives_back_along_the_path_and_counts_as_recovery():
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    kept, _, _ = play(Script({12: [Event.REWIND], 20: [Event.FAILURE]}), Counting(4, values=values), FakeTeleop((9.0, 9.0)), rewind_steps=5)
    before, back = [round(float(a[0]), 3) for a in kept.action[:12]], [round(float(a[0]), 3) for a in kept.action[12:17]]
    assert back == before[6:11][::-1]  # the five commands before the last, latest first
    assert kept.controller[12:] == [Controller.HUMAN_RECOVERY] * 8
    assert [float(a[0]) for a in kept.action[17:]] == [9.0] * 3  # then the person has it


def test_a_rewind_goes_further_back_to_what_is_familiar():
    familiar = np.array([True, True, False, False, False, False, False])
    assert rewind_to(2, familiar) == 1 and rewind_to(6, familiar) == 0 and rewind_to(2, np.ones(7, bool)) == 4
    assert rewind_to(1, np.zeros(4, bool)) == 0
    commands = np.arange(7.0)[:, None]
    assert path_back(commands, 4).ravel().tolist() == [5, 4] and path_back(commands, 0)[-1] == 0


def test_familiar_is_as_near_to_demonstrations_as_they_are_to_each_other():
    rng = np.random.default_rng(0)
    line = np.linspace(0, 1, 50)[:, None] * [1.0, 2.0]
    know = Familiar([(line + rng.normal(0, 0.01, line.shape)).astype(np.float32) for _ in range(6)])
    assert know(line).mean() > 0.8 and not know(line + np.array([0.5, -0.5])).any()
    with pytest.raises(ValueError, match="at least two"):
        Familiar([line])


def test_an_episode_ends_at_its_last_step_as_the_operator_judges():
    kept, played, _ = play(Script(up=[Event.QUALITY_2, Event.SUCCESS]), Counting(), max_steps=7)
    assert played.steps == 7 == len(kept.action) and played.end == Event.SUCCESS and played.quality == 2


def test_a_robot_that_drives_stands_still_while_the_operator_is_asked_how_it_ended():
    robot, operator = FakeWheels(), Script(up=[])
    poll, asked, late = operator.poll, [], []

    def time_is_up():
        asked.append(len(robot.sent))
        return []

    def answer_late(mode, step):
        if asked:
            late.append(len(robot.sent))
            return [Event.SUCCESS] if len(late) == 5 else []
        return poll(mode, step)

    operator.time_is_up, operator.poll = time_is_up, answer_late
    play(operator, Counting(values=[0.4]), robot=robot, max_steps=5)
    assert [action["base.vel"] for action in robot.sent[:5]] == [pytest.approx(0.4)] * 5
    assert asked[0] > 5 and late == list(range(asked[0] + 1, asked[0] + 6))  # before the question, and kept up
    assert not any(action["base.vel"] for action in robot.sent[5:])


def test_an_emergency_stop_ends_the_wait_for_a_verdict():
    operator = Script(up=[])
    operator.time_is_up = lambda: operator.arm.stop("key esc") and []
    with pytest.raises(Stopped, match="key esc"):
        play(operator, Counting(), max_steps=3)


def test_a_robot_stands_still_after_an_episode_however_it_ended():
    for said in ([Event.SUCCESS], [Event.DISCARD]):
        robot = FakeWheels()
        play(Script({5: said}), Counting(values=[0.4]), robot=robot)
        assert robot.sent[4]["base.vel"] and robot.sent[-1] == {"a.pos": pytest.approx(0.4), "base.vel": 0.0}
    robot, operator = FakeWheels(), Script()
    poll = operator.poll

    def fail(mode, step):
        if step == 5:
            raise ZeroDivisionError
        return poll(mode, step)

    operator.poll = fail
    with pytest.raises(ZeroDivisionError):
        play(operator, Counting(values=[0.4]), robot=robot)
    assert robot.sent[4]["base.vel"] and not robot.sent[-1]["base.vel"]


@pytest.mark.parametrize("event", [Event.DISCARD, Event.QUIT])
def test_an_episode_may_be_thrown_away(event):
    _, played, _ = play(Script({3: [event]}), Counting())
    assert played.end == event


def test_nobody_takes_over_where_there_is_no_teleoperator():
    kept, _, _ = play(Script({4: [Event.TAKE_OVER], 9: [Event.FAILURE]}), Counting())
    assert set(kept.controller) == {Controller.POLICY}


def test_a_policy_that_gives_nan_moves_nothing_and_is_given_up_on():
    robot = FakeRobot()
    with pytest.raises(UserError, match="not finite numbers"):
        play(Script(), Counting(4, values=[0.1, np.nan]), robot=robot)
    assert all(np.isfinite(list(action.values())).all() for action in robot.sent)
    assert {action["a.pos"] for action in robot.sent} <= {0.0, float(np.float32(0.1))}


def test_one_bad_plan_is_thrown_away_and_the_next_is_executed():
    kept, played, _ = play(Script(up=[Event.FAILURE]), Counting(4, values=[0.1, np.nan, 0.3, 0.4]), max_steps=10)
    assert played.steps == 10 and np.isfinite(kept.action).all() and played.report["guard"]["bad_action"] >= 1
    assert {round(float(a[0]), 3) for a in kept.action} <= {0.1, 0.3, 0.4}


def test_what_the_robot_stands_still_for_is_not_recorded_and_a_slow_policy_counts_as_starved():
    _kept, played, _ = play(Script(), Counting(3, delay_s=0.15), max_steps=9)
    assert played.steps == 9 and played.report["starved"] > 0 and played.report["guard"]["no_action"] == played.report["starved"]
    assert played.report["ticks"] >= 9 + played.report["starved"]
    assert played.report["inference_ms"]["p50"] >= 150


def test_a_released_dead_man_key_holds_a_policy_and_never_a_person():
    operator = Script({6: [Event.TAKE_OVER], 12: [Event.SUCCESS]}, holds=lambda: True)
    kept, played, _ = play(operator, Counting(), FakeTeleop(), dead_man=True)
    assert "dead_man" not in played.report["guard"]
    held = Script(holds=lambda: False)
    held.plan = {}
    polls = []

    def quit_after(mode, step):
        polls.append(step)
        return [Event.READY] if len(polls) == 1 else [Event.TAKE_OVER] if len(polls) == 20 else [Event.SUCCESS] if step >= 5 else []

    held.poll = quit_after
    kept, played, _ = play(held, Counting(), FakeTeleop(), dead_man=True)
    assert played.report["guard"]["dead_man"] >= 15 and set(kept.controller) == {Controller.HUMAN_RECOVERY}


def test_a_robot_that_shows_nothing_for_too_long_ends_the_episode_unrecorded():
    robot = FakeRobot()
    operator = Script()
    poll = operator.poll

    def hang(mode, step):
        if step == 5:
            robot.hang.set()
        return poll(mode, step)

    operator.poll = hang
    _kept, played, _ = play(operator, Counting(), robot=robot, stale_s=0.1)
    assert played.end == Event.DISCARD and played.report["guard"]["stale"] > 0 and played.steps <= 12


def test_an_emergency_stop_ends_the_episode_with_the_robot_standing():
    robot, operator = FakeRobot(), Script()
    poll = operator.poll
    operator.poll = lambda mode, step: (operator.arm.stop("key esc") and None) or poll(mode, step) if step == 6 else poll(mode, step)
    with pytest.raises(Stopped, match="key esc"):
        play(operator, Counting(), robot=robot)
    assert robot.sent[-1] == {"a.pos": pytest.approx(robot.sent[-2]["a.pos"]), "gripper.pos": pytest.approx(robot.sent[-2]["gripper.pos"])}


def test_the_rate_is_kept_and_reported():
    _, played, _ = play(Script(), Counting(), fps=10.0, max_steps=15)
    assert played.report["achieved_hz"] == pytest.approx(10.0, rel=0.15) and played.report["ticks"] == 16


class Filmed(FakeRobot):
    """Whose camera takes a picture only now and then."""

    def __init__(self, camera_hz):
        super().__init__()
        self.camera_hz, self.cameras = camera_hz, {"front": self}

    @property
    def latest_timestamp(self):
        return int(time.perf_counter() * self.camera_hz) / self.camera_hz


@pytest.mark.parametrize(("camera_hz", "repeated"), [(10.0, 0.5), (40.0, 0.0)])
def test_a_camera_that_is_slower_than_the_loop_is_counted_and_said(camera_hz, repeated, caplog):
    _, played, _ = play(Script(), Counting(), fps=20.0, max_steps=24, robot=Filmed(camera_hz))
    found = played.report["cameras"]["front"]
    assert found["hz"] == pytest.approx(min(camera_hz, 20.0), rel=0.2) and found["repeated"] == pytest.approx(repeated, abs=0.1)
    assert ("of camera front's pictures were recorded before" in caplog.text) == (repeated > 0)


def test_a_loop_that_misses_its_rate_says_so(caplog):
    robot = FakeRobot()
    look, send = robot.get_observation, robot.send_action
    robot.get_observation = lambda: look()
    robot.send_action = lambda action: time.sleep(0.08) or send(action)
    _, played, _ = play(Script(), Counting(), fps=20.0, max_steps=12, robot=robot)
    assert played.report["achieved_hz"] < 15 and "the loop ran at 1" in caplog.text and "20 Hz were asked for" in caplog.text
    assert missed({**played.report, "achieved_hz": 19.9}, 20.0) is None
    assert "3 readings of the robot" in missed({**played.report, "achieved_hz": 19.9, "slow_reads": 3}, 20.0)


def test_a_dead_man_key_that_is_up_is_asked_for_once(caplog):
    held = Script({}, holds=lambda: False)
    polls = []

    def quit_later(mode, step):
        polls.append(step)
        return [Event.READY] if len(polls) == 1 else [Event.QUIT] if len(polls) == 20 else []

    held.poll = quit_later
    play(held, Counting(), dead_man=True)
    assert caplog.text.count("the dead-man key is up") == 1


def test_a_released_dead_man_key_holds_a_rewind_too():
    """The path back is driven by the program: nobody's hand leads it."""
    left = [10]

    def holds():  # the key is up for ten ticks of the rewind
        if operator.modes[-1] == Mode.REWIND and left[0] > 0:
            left[0] -= 1
            return False
        return True

    operator = Script({12: [Event.REWIND], 20: [Event.FAILURE]}, holds=holds)
    kept, played, _ = play(operator, Counting(), FakeTeleop((9.0, 9.0)), rewind_steps=5, dead_man=True, dead_man_s=0.05)
    assert played.report["guard"]["dead_man"] >= 3 and kept.controller[12:] == [Controller.HUMAN_RECOVERY] * 8
    sent = [round(float(action[0]), 6) for action in kept.action]
    assert sent[12:17] == sent[6:11][::-1] and sent[17:] == [9.0] * 3  # the way back waited, no part of it was left out


# ------------------------------------------------------------------ pure parts


def test_modes():
    assert next_mode(Mode.POLICY, Event.TAKE_OVER) == Mode.RECOVERY and next_mode(Mode.RECOVERY, Event.CORRECT) == Mode.CORRECTION
    assert next_mode(Mode.CORRECTION, Event.TAKE_OVER) == Mode.POLICY and next_mode(Mode.POLICY, Event.CORRECT) == Mode.CORRECTION
    for event in Event:
        assert next_mode(Mode.DEMO, event) == Mode.DEMO
    assert [quality_of(e) for e in (Event.QUALITY_1, Event.QUALITY_5, Event.SUCCESS)] == [1, 5, None]


def test_a_success_that_a_person_judges_holds_at_the_end():
    assert rewards(4, 1.0).tolist() == [0, 0, 0, 1] and not rewards(4, 0.0).any() and rewards(0, 1.0).shape == (0,)


def test_a_fresh_plan_fades_in():
    left, fresh = np.zeros((3, 1), np.float32), np.ones((6, 1), np.float32)
    assert joined(left, fresh, 2, 0).ravel().tolist() == [1, 1, 1, 1]
    assert np.allclose(joined(left, fresh, 1, 3).ravel(), [0.25, 0.5, 0.75, 1, 1])
    assert np.allclose(joined(left[:1], fresh, 0, 3).ravel(), [0.25, 1, 1, 1, 1, 1])  # the running plan ends
    assert joined(left, fresh, 9, 2).shape == (0, 1) and (fresh == 1).all()


def test_prefix_weights_hold_what_will_be_executed_and_let_go_later():
    weights = prefix_weights(2, 6, 10)
    assert weights[:2].tolist() == [1, 1] and (np.diff(weights[1:7]) < 0).all() and not weights[6:].any()
    assert not prefix_weights(0, 0, 5).any() and prefix_weights(9, 3, 5).tolist() == [1, 1, 1, 0, 0]


def test_plans_overlap_so_that_none_runs_out():
    policy = Counting(6, delay_s=0.04)
    _, played, _ = play(Script(), policy, fps=50.0, max_steps=60)
    assert played.report["starved"] <= 3 and played.report["delay_steps"]["max"] >= 1 and policy.plans > 10


class Ticking(Clock):
    """A clock that moves when somebody sleeps."""

    def __init__(self):
        super().__init__()
        self.time = 0.0

    def now(self):
        return self.time

    def sleep_until(self, moment, wake=None):
        self.time = max(self.time, moment)
        return False


def test_the_rate_of_a_camera_counts_each_picture_once():
    assert camera_rate([0.0, 0.0, 0.5, 1.0, 1.0]) == {"hz": 2.0, "repeated": 0.4} and camera_rate([1.0]) == {"hz": None, "repeated": 0.0}


def test_a_late_tick_is_caught_up_with_and_a_very_late_one_starts_anew():
    clock = Ticking()
    pace = Pace(clock, 0.1)
    for work in (0.0, 0.15, 0.0, 0.35, 0.0):
        pace.wait()
        clock.time += work
    pace.wait()
    assert np.allclose(pace.ticks, [0, 0.1, 0.25, 0.3, 0.65, 0.75]) and pace.overruns == 1
    assert achieved_hz(pace.ticks) == pytest.approx(5 / 0.75) and achieved_hz([1.0]) is None
