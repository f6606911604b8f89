"""A coordinator is a child of whoever started it: started again when it is killed, ended with the block."""

import os
import signal
import time

import pytest

from gangline.flare import supervisor

PROGRAM = """
import os, signal, sys, time
with open(sys.argv[1] + "/pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def pids(folder, *, count):
    deadline = time.monotonic() + 30
    while len(found := (folder / "pids").read_text().split() if (folder / "pids").exists() else []) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return [int(each) for each in found]


def test_a_coordinator_that_is_killed_is_started_again_and_ends_with_the_gang(tmp_path, monkeypatch):
    (tmp_path / "waiting_program.py").write_text(PROGRAM)
    monkeypatch.setattr(supervisor, "ENDING_SECONDS", 0.1)
    with supervisor.supervised("waiting_program", tmp_path, os.environ | {"PYTHONPATH": str(tmp_path)}):
        [first] = pids(tmp_path, count=1)
        os.kill(first, signal.SIGKILL)
        _, second = pids(tmp_path, count=2)
        assert second != first
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


def test_one_that_ends_by_itself_is_not_started_again(tmp_path):
    (tmp_path / "ending_program.py").write_text("")
    with supervisor.supervised("ending_program", tmp_path, os.environ | {"PYTHONPATH": str(tmp_path)}) as found:
        assert found.wait(30) == 0
