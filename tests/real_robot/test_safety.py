"""Every limit, as the pure function and through the guard."""

import threading
import time

import numpy as np
import pytest

from real_robot.arm import Arm, Seen
from real_robot.clock import Clock
from real_robot.safety import DeadMan, Guard, Limits, Why, limited
from robowm.errors import UserError
from tests.real_robot.fakes import FakeRobot, spec

NAMES = ["shoulder_pan.pos", "gripper.pos", "base.vel"]
DT = 0.1


def limits(**given):
    return Limits.of(NAMES, **given)


def guard(**given):
    made = Guard(NAMES, limits(**given), DT, stale_s=0.3)
    made.start(np.zeros(3))
    return made


def test_without_limits_a_target_goes_through_unchanged():
    command = guard().command(np.array([10.0, -5.0, 3.0]), age=0.0)
    assert command.action.tolist() == [10.0, -5.0, 3.0] and not command.why


def test_workspace():
    command = guard(workspace={"shoulder_pan": [-1, 1], "gripper.pos": [0, 2]}).command(np.array([5.0, -3.0, 9.0]), age=0.0)
    assert command.action.tolist() == [1.0, 0.0, 9.0] and command.why == {Why.WORKSPACE}


def test_velocity():
    made = guard(velocity={"shoulder_pan": 20})
    steps = [made.command(np.array([10.0, 0, 0]), age=0.0) for _ in range(7)]
    assert [round(c.action[0], 9) for c in steps] == [2, 4, 6, 8, 10, 10, 10]
    assert steps[0].why == {Why.VELOCITY} and not steps[5].why


def test_acceleration_also_when_braking_and_without_overshoot():
    made, place, speed = guard(acceleration=50.0, velocity=40.0), 0.0, 0.0
    for _ in range(60):
        command = made.command(np.array([30.0, 0, 0]), age=0.0)
        fresh = (command.action[0] - place) / DT
        assert abs(fresh - speed) <= 50.0 * DT + 1e-6 and fresh <= 40.0 + 1e-6 and command.action[0] <= 30.0 + 1e-9
        place, speed = command.action[0], fresh
    assert place == pytest.approx(30.0, abs=0.3)


def test_the_workspace_goes_before_acceleration():
    box = limits(workspace={"shoulder_pan": [0, 1]}, acceleration=1.0)
    command, _, _ = limited(np.array([9.0, 0, 0]), np.array([0.95, 0, 0]), np.array([20.0, 0, 0]), box, DT)
    assert command[0] <= 1.0


def test_a_robot_inside_the_workspace_never_leaves_it_whatever_is_asked():
    rng, made = np.random.default_rng(0), guard(workspace={"shoulder_pan": [-1, 1]}, velocity=8.0, acceleration=9.0)
    place = speed = 0.0
    for _ in range(400):
        command = made.command(rng.uniform(-9, 9, 3), age=0.0)
        fresh = (command.action[0] - place) / DT
        assert abs(command.action[0]) <= 1 and abs(fresh - speed) <= 9.0 * DT + 1e-6 and abs(fresh) <= 8.0 + 1e-6
        place, speed = command.action[0], fresh


@pytest.mark.parametrize("target", [9.0, 0.5, -9.0])
def test_a_robot_outside_the_workspace_comes_back_within_the_other_limits(target):
    made = guard(workspace={"shoulder_pan": [-1, 1]}, velocity=2.0, acceleration=10.0)
    made.start(np.array([1.7, 0, 0]))
    place, speed = 1.7, 0.0
    for _ in range(60):
        command = made.command(np.array([target, 0, 0]), age=0.0)
        fresh = (command.action[0] - place) / DT
        assert abs(fresh) <= 2.0 + 1e-9 and abs(fresh - speed) <= 10.0 * DT + 1e-9
        assert fresh <= 1e-9  # never farther out, and here never away from any of the targets
        assert place > 1 or abs(command.action[0]) <= 1
        place, speed = command.action[0], fresh
    assert place == pytest.approx(np.clip(target, -1, 1), abs=0.05)


def test_a_pose_outside_the_workspace_is_held_where_it_is():
    made = guard(workspace={"shoulder_pan": [-1, 1]})
    made.start(np.array([1.7, 0, 0]))
    assert made.command(None, age=0.0).action[0] == 1.7
    way, speed, _ = limited(
        np.array([9.0, 0, 0]),
        np.array([1.7, 0, 0]),
        np.array([3.0, 0, 0]),
        limits(workspace={"shoulder_pan": [-1, 1]}, acceleration=1.0),
        DT,
    )
    assert way[0] == 1.7 and speed[0] == 0  # moved outwards: not on


@pytest.mark.parametrize("target", [[np.nan, 0, 0], [0, np.inf, 0], [0.0, 0.0]], ids=["nan", "infinity", "too short"])
def test_what_is_no_action_moves_nothing(target):
    made = guard()
    made.command(np.array([1.0, 2.0, 3.0]), age=0.0)
    command = made.command(np.array(target, float), age=0.0)
    assert command.held and command.why == {Why.BAD_ACTION}
    assert command.action.tolist() == [1.0, 2.0, 0.0]  # positions as they were, velocities 0


@pytest.mark.parametrize("age", [0.31, np.inf, np.nan])
def test_a_stale_observation_moves_nothing(age):
    command = guard().command(np.array([1.0, 1.0, 1.0]), age=age)
    assert command.why == {Why.STALE} and not command.action.any()


def test_no_action_moves_nothing():
    assert guard().command(None, age=0.0).why == {Why.NO_ACTION}


def test_after_a_hold_motion_begins_from_standing():
    made = guard(acceleration=50.0)
    for _ in range(5):
        made.command(np.array([30.0, 0, 0]), age=0.0)
    here = made.command(None, age=0.0).action[0]
    assert made.command(np.array([30.0, 0, 0]), age=0.0).action[0] - here <= 50.0 * DT * DT + 1e-9


def test_the_dead_man_key():
    key = DeadMan(needed=True, patience_s=0.5)
    assert not key.held(0.0)
    key.sign(1.0)
    assert key.held(1.5) and not key.held(1.6)
    assert DeadMan(needed=False, patience_s=0.5).held(99.0)
    assert guard().command(np.ones(3), age=0.0, enabled=False).why == {Why.DEAD_MAN}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workspace": {"shoulder_pam": [0, 1]}}, "did you mean 'shoulder_pan'"),
        ({"workspace": {"gripper": [1, 1]}}, "the first must be the smaller"),
        ({"velocity": 0}, "safety.velocity of shoulder_pan.pos is 0"),
        ({"acceleration": {"gripper": -3}}, "safety.acceleration of gripper.pos is -3"),
    ],
)
def test_limits_that_make_no_sense_are_refused(given, said):
    with pytest.raises(UserError, match=said):
        limits(**given)


@pytest.fixture
def arm():
    robot = FakeRobot()
    with Arm(robot, spec(robot), Limits.of(list(robot.action_features), velocity=5.0), stale_s=0.3, clock=Clock()) as made:
        yield made


def test_an_emergency_stop_reaches_the_robot_within_a_control_period_and_lasts(arm):
    moving = threading.Event()

    def loop():
        while not arm.estop.is_set:
            arm.send(np.array([100.0, 100.0]), arm.fetch(0.05))
            moving.set()
            time.sleep(1 / 30)

    thread = threading.Thread(target=loop)
    thread.start()
    moving.wait(5.0)
    waited = []
    pressed = time.perf_counter()
    sent = arm.stop("test")
    waited.append(time.perf_counter() - pressed)
    thread.join()
    assert waited[0] < 1 / 10 and sent.command.why == {Why.STOPPED}
    held = arm.robot.sent[-1]
    for _ in range(3):
        assert arm.send(np.array([100.0, 100.0]), arm.fetch(0.05)).command.why == {Why.STOPPED}
    assert all(action == held for action in arm.robot.sent[-3:]) and arm.stop("again") is None
    assert held == {name: pytest.approx(arm.robot.pose[name], abs=1.0) for name in held}


def test_an_emergency_stop_stays_at_the_last_command_where_the_pose_was_not_seen_just_now(arm):
    arm.fetch(1.0)
    behind = dict(arm.robot.pose)
    for _ in range(5):
        arm.send(np.array([100.0, 100.0]), arm.fetch(0.0))
    last = arm.robot.sent[-1]
    assert last["a.pos"] > 0.5
    arm.robot.pose = behind
    arm.fresh(arm.clock.now())  # the robot hangs back
    arm.robot.hang.set()
    try:
        time.sleep(2 / 30)
        assert arm.clock.now() - arm.fetch(0.0).at < arm.guard.stale_s
        assert arm.stop("test").command.action.tolist() == [last["a.pos"], last["gripper.pos"]]
    finally:
        arm.robot.hang.clear()


def test_an_observation_is_as_old_as_its_oldest_picture():
    seen = Seen(10.0, np.zeros(2), {}, {"front": 9.9, "wrist": 9.2})
    assert seen.age(10.1) == pytest.approx(0.9) and Seen(10.0, np.zeros(2), {}, {}).age(10.1) == pytest.approx(0.1)


def test_a_picture_that_is_too_old_holds_the_robot_though_its_joints_were_read_just_now():
    robot = FakeRobot()
    robot.cameras, robot.latest_timestamp = {"front": robot}, None
    with Arm(robot, spec(robot), Limits.of(list(robot.action_features)), stale_s=0.3, clock=Clock()) as arm:
        for age, why in ((0.0, set()), (0.4, {Why.STALE})):
            robot.latest_timestamp = time.perf_counter() - age
            seen = arm.fetch(1.0)
            assert arm.clock.now() - seen.at < 0.2 and arm.send(np.array([0.1, 0.1]), seen).command.why == why


class SlowToRead(FakeRobot):
    """Notes when reads begin and commands come."""

    def __init__(self, read_s):
        super().__init__()
        self.read_s, self.log = read_s, []

    def get_observation(self):
        self.log.append("read")
        time.sleep(self.read_s)
        return super().get_observation()

    def send_action(self, action):
        self.log.append("sent")
        return super().send_action(action)


def test_an_emergency_stop_waits_for_the_read_that_is_running(caplog):
    robot = SlowToRead(0.15)
    with Arm(robot, spec(robot), Limits.of(list(robot.action_features)), stale_s=9.0, clock=Clock()) as arm:
        assert "'fake' takes 15" in caplog.text and "an emergency stop too" in caplog.text
        asking = threading.Thread(target=lambda: [arm.fetch(1.0) for _ in range(3)])
        asking.start()
        time.sleep(0.07)
        pressed = arm.clock.now()
        assert arm.stop("test").at - pressed < 0.3  # not for the next two
        asking.join()
    assert len(arm.read_s) > 6 and min(arm.read_s) >= 0.15


def test_no_read_begins_while_an_emergency_stop_waits_to_be_sent():
    robot = SlowToRead(0.01)
    with Arm(robot, spec(robot), Limits.of(list(robot.action_features)), stale_s=9.0, clock=Clock()) as arm:
        asking = threading.Thread(target=lambda: [arm.fetch(0.1) for _ in range(40)])
        asking.start()
        with arm._guarded:  # a command is on its way
            stopping = threading.Thread(target=arm.stop, args=("test",))
            stopping.start()
            time.sleep(0.05)
            began = len(robot.log)
            time.sleep(0.1)
            assert len(robot.log) == began
        stopping.join()
        asking.join()
        assert robot.log[began] == "sent" and "read" in robot.log[began:]


def test_a_command_that_waited_for_a_slow_read_is_held_where_what_it_was_decided_on_is_too_old_by_now():
    robot = SlowToRead(0.0)
    with Arm(robot, spec(robot), Limits.of(list(robot.action_features)), stale_s=0.2, clock=Clock()) as arm:
        seen, robot.read_s = arm.fresh(), 0.3
        began = len(robot.log)
        slow = threading.Thread(target=arm.fetch, args=(1.0,))
        slow.start()
        while len(robot.log) == began:
            time.sleep(0.001)
        assert arm.send(np.array([9.0, 9.0]), seen).command.why == {Why.STALE}
        slow.join()


def test_reads_that_are_fast_enough_are_not_warned_of(arm, caplog):
    assert arm.read_s and not caplog.text


def test_an_emergency_stop_goes_towards_the_pose_no_farther_than_a_command_may():
    made = guard(velocity=20.0, acceleration=50.0)
    for _ in range(6):
        last = made.command(np.array([30.0, 0, 5.0]), age=0.0).action
    near, far = np.array([last[0] - 0.1, 0, 5.0]), np.array([last[0] - 3.0, 0, 5.0])
    assert made.stop(far).action.tolist() == [pytest.approx(last[0] - 50.0 * DT * DT), 0, 0]
    made.start(last)
    assert made.stop(near).action.tolist() == [pytest.approx(near[0]), 0, 0]
    made.start(last)
    assert made.stop(None).action.tolist() == [last[0], 0, 0] and made.stop(None).why == {Why.STOPPED}
    made = guard(workspace={"shoulder_pan": [-1, 1]}, velocity=2.0)
    assert made.stop(np.array([7.0, 0, 0])).action[0] == pytest.approx(0.2)
    made.start(np.array([1.7, 0, 0]))
    assert made.stop(np.array([1.7, 0, 0])).action[0] == 1.7 and made.stop(np.array([1.8, 0, 0])).action[0] == 1.7


def test_an_observation_that_does_not_come_grows_old_and_holds_the_robot(arm):
    seen = arm.fetch(1.0)
    arm.robot.hang.set()
    try:
        time.sleep(0.35)
        late = arm.fetch(0.02)
        assert late.at <= seen.at + 0.1
        assert arm.send(np.array([100.0, 100.0]), seen).command.why == {Why.STALE}
    finally:
        arm.robot.hang.clear()
    assert not arm.send(np.array([100.0, 100.0]), arm.fresh(arm.clock.now())).command.held


def test_a_reading_that_fails_is_counted_and_the_next_one_counts(arm):
    arm.robot.failures = 2
    arm.fresh(arm.clock.now())
    assert sum(arm.read_errors.values()) == 2


def test_a_measured_nan_is_no_observation(arm):
    arm.robot.pose["a.pos"] = float("nan")
    seen = arm.fetch(0.1)
    assert np.isfinite(seen.state).all()
    assert any("a.pos is not finite" in text for text in arm.read_errors)


def test_a_robot_that_takes_no_command_is_one_line(arm):
    arm.robot.deaf = True
    with pytest.raises(UserError, match="took no command: bus lost"):
        arm.send(np.zeros(2), arm.fetch(0.05))
    arm.robot.deaf = False
