from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from robowm.errors import UserError
from sim import workers
from sim.tabletop import TabletopEnv


@pytest.fixture
def pool():
    env = TabletopEnv("push", n=4, workers=2, cameras=())
    yield env
    env.close()


def test_workers_give_what_one_process_gives(gl):
    one, two = TabletopEnv("pick_place", n=5, image_size=16), TabletopEnv("pick_place", n=5, image_size=16, workers=2)
    for seeds in (range(5), [7], range(2, 5)):
        a, b = one.reset(seeds), two.reset(seeds)
        actions = np.repeat(a.state, 3, axis=1) + np.random.default_rng(0).normal(0, 0.02, (len(a), 3, 5)).astype(np.float32)
        active = np.arange(len(a)) % 2 == 0
        a, b = one.step(actions, active), two.step(actions, active)
        assert np.array_equal(a.obs.environment_state, b.obs.environment_state) and np.array_equal(a.valid, b.valid)
        assert all(np.array_equal(a.obs.frames[c], b.obs.frames[c]) for c in a.obs.frames)
        assert np.array_equal(one.get_state(), two.get_state()) and np.array_equal(one.goal_holds(), two.goal_holds())
        assert np.array_equal(two.set_state(one.get_state()).frames["wrist"][:, 0], a.obs.frames["wrist"][:, -1])
    assert b.obs.task == a.obs.task
    two.close()


def test_a_killed_worker_is_a_clear_error_and_so_is_the_next_call(pool):
    pool.reset(range(4))
    os.kill(pool._batch._workers[1].pid, signal.SIGKILL)
    with pytest.raises(UserError, match=r"worker 1 .*exit code -9"):
        pool.step(np.zeros((4, 1, 5), np.float32), np.ones(4, bool))
    with pytest.raises(UserError, match="build a new one"):
        pool.reset(range(4))


def test_a_worker_that_hangs_is_ended_and_reported(pool, monkeypatch):
    pool.reset(range(4))
    monkeypatch.setattr(workers, "PATIENCE", 0.2)
    os.kill(pool._batch._workers[0].pid, signal.SIGSTOP)
    with pytest.raises(UserError, match="gave no answer"):
        pool.reset(range(4))


def test_an_error_inside_a_worker_surfaces_with_its_traceback(pool):
    pool.reset(range(4))
    with pytest.raises(RuntimeError, match=r"(?s)tabletop worker 0 failed.*unknown call 'dance'"):
        pool._batch._ask([({"call": "dance"}, {})])
    assert len(pool.reset(range(4))) == 4  # the workers go on


def test_workers_leave_when_their_parent_has_gone(pool):
    processes = pool._batch._workers
    for pipe in pool._batch._pipes:
        pipe.close()
    assert [process.wait(10) for process in processes] == [0, 0]
