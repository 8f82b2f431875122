import multiprocessing
import os
import signal

import pytest

from robowm.errors import UserError
from robowm.locks import exclusive


def _hold(folder, ready):
    with exclusive(folder):
        ready.set()
        signal.pause()


def test_a_second_process_is_told_who_holds_the_folder_and_a_kill_frees_it(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path / "run", ready))
    holder.start()
    assert ready.wait(30)
    with pytest.raises(UserError, match=f"in use by process {holder.pid}"), exclusive(tmp_path / "run"):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with exclusive(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").read_text().strip() == str(os.getpid())


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make"), exclusive(tmp_path / "file" / "run"):
        pass
