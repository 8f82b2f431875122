"""An outcome belongs to the policy alone where it acted alone."""

import numpy as np
import pytest

from robowm.data.spec import EpisodeMeta
from robowm.habc.credit import NEVER, Role, assign, spans, steps_to_go, until_takeover
from robowm.types import Controller, Source

P, H, C, G, D = (
    Controller.POLICY,
    Controller.HUMAN_RECOVERY,
    Controller.HUMAN_CORRECTION,
    Controller.GUIDED,
    Controller.DEMO,
)


def credit(*runs, success=1.0, kind="rollout", reward=None, chunk=4, **options):
    """Return the credit of an episode of ``runs`` (controller, steps); without ``reward`` the goal holds after the last step."""
    controller = np.concatenate([np.full(count, who, np.int8) for who, count in runs])
    segment = np.repeat(np.arange(len(runs)), [count for _, count in runs]).astype(np.int32)
    length = len(controller)
    judged = "simulator" if success == success else ""
    meta = EpisodeMeta(length, "move", 10.0, Source(kind, 1, "p"), success, judged, False, "")
    if reward is None:
        reward = np.zeros(length, np.float32)
        reward[-1] = success == 1
    return assign(meta, controller, segment, reward, chunk=chunk, **options)


def labelled(found):
    return np.flatnonzero(np.isfinite(found.outcome)).tolist()


@pytest.mark.parametrize("success", [1.0, 0.0])
def test_an_autonomous_episode_labels_all_its_steps_with_its_outcome(success):
    found = credit((P, 6), success=success)
    assert found.outcome.tolist() == [success] * 6
    assert found.timed.all() == found.timed.any() == (success == 1)


def test_policy_human_policy_labels_the_last_segment_alone():
    found = credit((P, 5), (H, 3), (P, 4), success=0.0)
    assert labelled(found) == [8, 9, 10, 11] and found.outcome[8:].tolist() == [0.0] * 4
    assert labelled(credit((P, 5), (H, 3), success=0.0)) == []


def test_recovery_then_correction_are_one_intervention():
    assert labelled(credit((P, 2), (H, 2), (C, 2), (P, 2))) == [6, 7]
    assert until_takeover(np.array([P, P, H, C, P])).tolist() == [2, 1, NEVER, NEVER, NEVER]


@pytest.mark.parametrize("kind", ["imagined", "guided", "demo"])
@pytest.mark.parametrize("whole_episode", [False, True])
def test_imagined_guided_and_demonstrated_steps_get_no_viability_label(kind, whole_episode):
    assert labelled(credit((P, 3), (G, 3), (P, 4), kind=kind, whole_episode=whole_episode)) == []
    assert labelled(credit((G, 3), (D, 3), (H, 3), whole_episode=whole_episode)) == []


def test_unjudged_episodes_and_other_policies_teach_nothing():
    found = credit((P, 5), success=float("nan"))
    assert labelled(found) == [] and not found.timed.any() and (found.role == Role.FAILURE).all()
    other = credit((P, 5), own=False)
    assert labelled(other) == [] and not other.timed.any() and (other.role == Role.SUCCESS).all()


def test_the_rule_can_be_switched_off_but_a_person_still_gets_no_label():
    assert labelled(credit((P, 3), (H, 2), (P, 2), whole_episode=True)) == [0, 1, 2, 5, 6]


def test_a_margin_before_take_overs_is_dropped():
    found = credit((P, 5), (H, 2), (P, 4), whole_episode=True, margin=2)
    assert labelled(found) == [0, 1, 2, 7, 8, 9, 10]
    assert found.until_takeover[:5].tolist() == [5, 4, 3, 2, 1] and (found.until_takeover[5:] == NEVER).all()
    assert np.flatnonzero(~found.timed).tolist() == [3, 4]


def test_steps_to_go_come_from_successes_in_the_real_world():
    found = credit((P, 3), (H, 2), (P, 3))
    assert np.flatnonzero(found.timed).tolist() == [3, 4, 5, 6, 7]  # the person's steps and what the policy did afterwards
    assert found.togo.tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert credit((P, 2), (G, 3), (P, 2), kind="guided").timed.tolist() == [False, False, True, True, True, True, True]
    assert not credit((P, 4), kind="imagined").timed.any() and not credit((D, 4), kind="demo").timed.any()


def test_steps_to_go_end_where_the_goal_first_held():
    assert steps_to_go(np.array([0, 0, 1, 0, 1], np.float32), True).tolist() == [3, 2, 1, 0, 0]
    assert steps_to_go(np.zeros(3, np.float32), True).tolist() == [3, 2, 1]
    assert (steps_to_go(np.array([0, 1], np.float32), False) == NEVER).all()


def test_windows_that_straddle_are_masked_where_another_controller_begins():
    found = credit((P, 6), (H, 3), (P, 2), success=0.0)
    assert found.span.tolist() == [4, 4, 4, 3, 2, 1, 3, 2, 1, 2, 1] and not found.arrives.any()
    assert spans(np.zeros(6, int), np.array([3, 2, 1, 0, 0, 0]), 4).tolist() == [3, 2, 1, 0, 0, 0]
    arriving = credit((P, 8), reward=np.array([0, 0, 0, 0, 0, 1, 1, 1], np.float32))
    assert arriving.arrives.tolist() == [False, False, True, True, True, True, True, True]


def test_roles_say_who_acted_and_how_it_ended():
    assert credit((P, 1), (H, 1), (C, 1), success=0.0).role.tolist() == [Role.FAILURE, Role.HUMAN, Role.HUMAN]
    assert credit((P, 1), (G, 1), kind="guided").role.tolist() == [Role.SUCCESS, Role.ASSISTED]
    assert credit((P, 1), (G, 1), kind="guided", success=0.0).role.tolist() == [Role.FAILURE, Role.FAILURE]
    assert credit((P, 2), kind="imagined").role.tolist() == [Role.ASSISTED] * 2
    assert credit((D, 2), kind="demo", success=float("nan")).role.tolist() == [Role.DEMO] * 2
