"""SIGTERM to a driver: the run is free at once for the next driver, and its gang runs on."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.line import repositories

from gangline.errors import SIGTERM_CODE
from gangline.launch.local.launcher import LocalLauncher
from gangline.line.gangs.launchers import gangs_root
from gangline.line.record.store import RecordStore
from gangline.line.run import lease
from gangline.line.run.cancel import cancel_run
from gangline.line.run.sigterm import exit_on_sigterm
from gangline.spec.run_flags import stage
from gangline.storage.folder.store import FolderStore

PREFIX = "runs/cheap/abc/cheap-9f31c2a0-k7q2mx"
SECONDS = 60.0
STUCK = """
import sys, time
from pathlib import Path
from gangline.line.run import lease
from gangline.storage.folder.store import FolderStore
store, prefix = FolderStore(Path(sys.argv[1])), sys.argv[2]
mine = lease.acquire_lease(store, prefix, holder=lease.this_process(), at_least=0)
with lease.renewed_lease(store, prefix, mine, on_problem=print):
    try:
        print("driving", flush=True)
        time.sleep(300)
    finally:
        time.sleep(300)  # a cleanup that takes longer than a platform waits
"""
HEAD = """
import os, sys
from pathlib import Path
from gangline.spec.config.site import Site
repo, run = Path(sys.argv[1]), sys.argv[2]
where = {"site": Site(), "environ": os.environ}
"""
DRIVERS = {
    "terminal and service": """
from gangline.line.stages.run_line import run_line
run_line(repo, **where)
""",
    "Jenkins": """
from gangline.line.stages.run_stage import run_stage
run_stage(repo, "train", run, kind="jenkins", **where)
""",
    "task of a pipeline": """
from gangline.kfp.run_stage import run_stage
from gangline.kfp.task_config import TaskConfig
run_stage("train", run=run, config=TaskConfig(site=Site(), repo=str(repo)).to_text())
""",
}


def until(holds, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        time.sleep(0.02)


@pytest.mark.row("C6")
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_driver_that_sigterm_ends_leaves_a_free_run_and_its_gang(workspace, tmp_path, driver):
    repositories.commit(workspace.repo, {"answer.py": repositories.LONG_PROGRAM})
    repositories.settle_inventory(workspace.repo)
    run = workspace.run(until="submit").run.id
    prefix = RecordStore.of(workspace.store, workspace.record(run)).prefix
    before = lease.read_lease(workspace.store, prefix).token
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    command = [sys.executable, "-c", HEAD + DRIVERS[driver], str(workspace.repo), run]
    with subprocess.Popen(command, env=os.environ | home, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: stage(workspace.record(run), "train").state == "running")
            process.terminate()
            assert process.wait(SECONDS) == SIGTERM_CODE
        finally:
            process.kill()
    left = lease.read_lease(workspace.store, prefix)
    assert (left.holder, left.token) == ("", before + 1)
    gangs = LocalLauncher(gangs_root(workspace.repo), store=workspace.store, secrets=lambda _: b"", targets={})
    assert gangs.status(run).state in ("starting", "running")
    cancel_run(workspace.repo, run, **workspace.where, reason="test is over", save=False)


@pytest.mark.row("C6")
def test_the_lease_is_released_before_a_driver_has_cleaned_up(tmp_path):
    store = FolderStore(tmp_path)
    command = [sys.executable, "-c", STUCK, str(tmp_path), PREFIX]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        try:
            assert driver.stdout.readline() == b"driving\n"
            driver.terminate()
            until(lambda: not lease.read_lease(store, PREFIX).holder, seconds=20)
            driver.terminate()  # interrupts no cleanup
            time.sleep(0.2)
            assert driver.poll() is None
        finally:
            driver.kill()
    assert lease.acquire_lease(store, PREFIX, holder=lease.this_process(), at_least=0).token == 2


def test_the_handler_that_was_there_before_is_there_after():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("outer"))
    try:
        with pytest.raises(SystemExit), exit_on_sigterm(lambda: seen.append("first")):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["first", "outer"]


def test_a_driver_in_another_thread_leaves_the_handler_alone():
    seen = []

    def drive():
        with exit_on_sigterm():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
