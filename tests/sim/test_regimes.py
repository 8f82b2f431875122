from dataclasses import replace

import numpy as np
import pytest

from robowm.errors import UserError
from robowm.rollout import run_episodes
from sim import discs, tabletop
from sim.experts import NeverMoves, ScriptedExpert


def episode(env, actor, seed, steps):
    (rollout,) = run_episodes(env, actor, [seed], max_steps=steps, kind="demo")
    return rollout.episode


@pytest.fixture(scope="module")
def carried():
    return episode(tabletop.TabletopEnv("pick_place", n=1, cameras=()), ScriptedExpert("pick_place"), 3, 70)


def test_a_cube_is_approached_touched_carried_and_let_go(carried):
    masks = tabletop.Regimes()(carried)
    assert np.sum(list(masks.values()), 0).tolist() == [1] * 71, "every row is in exactly one"
    first = {name: int(mask.argmax()) for name, mask in masks.items()}
    assert first["free"] == 0 < first["contact"] < first["grasped"]
    height = carried.environment_state[:, 2]
    assert height[masks["grasped"]].min() > height[0] + 0.005
    assert np.ptp(height[masks["free"]]) < 0.002, "nothing lifts the cube in free motion"


def test_a_hand_that_never_moves_touches_nothing():
    still = episode(tabletop.TabletopEnv("pick_place", n=1, cameras=()), NeverMoves(), 3, 10)
    assert tabletop.Regimes()(still)["free"].all()


def test_occlusion_needs_the_mask_of_the_camera(carried):
    mask = np.zeros((71, 4, 4, 3), np.uint8)
    mask[:30, 1, 1, 1] = 255
    mask[:, 2, 2, 0] = 255  # the gripper is always in view
    seen = replace(carried, frames={"wrist_mask": mask})
    assert "occluded" not in tabletop.Regimes()(seen)
    with pytest.raises(UserError, match=r"regimes.camera=external .* 'external_mask', found wrist_mask; record with env.masks=true"):
        tabletop.Regimes("external")(seen)
    with pytest.raises(UserError, match=r"found no camera; "):
        tabletop.Regimes("wrist")(carried)
    assert tabletop.Regimes("wrist")(seen)["occluded"].tolist() == [False] * 30 + [True] * 41


def test_a_puck_rests_is_hit_and_glides():
    chased = episode(discs.DiscsEnv(1), discs.Chase(), 10_000, 40)
    masks = discs.Regimes()(chased)
    assert np.sum(list(masks.values()), 0).tolist() == [1] * 41
    first = {name: int(mask.argmax()) for name, mask in masks.items()}
    assert first["free"] == 0 < first["contact"] < first["moving"]
    puck = chased.environment_state[:, 2:4]
    assert np.abs(np.diff(puck, axis=0))[masks["free"][:-1] & masks["free"][1:]].max() < 0.01


@pytest.mark.parametrize("regimes", [tabletop.Regimes(), discs.Regimes()])
def test_data_without_the_simulator_s_truth_are_refused(carried, regimes):
    with pytest.raises(UserError, match="environment state of"):
        regimes(replace(carried, environment_state=None))
