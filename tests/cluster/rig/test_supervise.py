"""What the supervisor runs is started again when it ends, and never outlives it."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.rig import process
from tests.cluster.rig.supervise import Supervisor


def poll(holds, seconds=30):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_command_that_ends_runs_again(tmp_path):
    supervisor = Supervisor(tmp_path)
    deadline = time.monotonic() + 30
    supervisor.start({"short": [sys.executable, "-c", "print('ran')"]})
    log = tmp_path / "short.log"
    supervisor.watch(until=lambda: log.read_text().count("ran\n") >= 2 or time.monotonic() > deadline)
    supervisor.stop()
    assert log.read_text().count("ran\n") >= 2


def test_stop_leaves_none_running(tmp_path):
    supervisor = Supervisor(tmp_path)
    supervisor.start({"one": ["sleep", "100"], "two": ["sleep", "100"]})
    running = [each.pid for each in supervisor._running.values()]
    supervisor.stop()
    assert [process.started(pid) for pid in running] == [None, None]


def test_each_command_counts_for_itself_where_the_kernel_shares_cores_out_by_session(tmp_path):
    supervisor = Supervisor(tmp_path)
    supervisor.start({"one": ["sleep", "100"], "two": ["sleep", "100"]})
    sessions = {os.getsid(each.pid) for each in supervisor._running.values()}
    supervisor.stop()
    assert len(sessions | {os.getsid(0)}) == 3


def test_children_of_a_killed_supervisor_die(tmp_path):
    program = f"""
import sys, time
from pathlib import Path
from tests.cluster.rig.supervise import Supervisor
supervisor = Supervisor(Path({str(tmp_path)!r}))
supervisor.start({{"child": ["sleep", "100"]}})
print(supervisor._running["child"].pid, flush=True)
time.sleep(100)
"""
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
    poll(lambda: process.started(child) is None)
