"""Workers and servers of one run as real gangs, from the commit to the verdict."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.line import repositories
from tests.line.run.test_stopping import DRIVER

from gangline.line.gangs.launchers import open_launcher
from gangline.line.gangs.logs import gang_of_role
from gangline.line.gangs.many import WORKER
from gangline.line.run.cancel import cancel_run
from gangline.line.stages.run_line import run_line
from gangline.spec.identity import worker_gangs
from gangline.spec.run_flags import stage

TASK = Path(__file__).parents[2] / "train" / "code" / "model.py"
LINE = """\
[project]
name = "apart"
task = "model:Tiny"
[model]
width = 8
layers = 2
[train]
strategy = "parameter_server"
steps = 16
global_batch = 8
ranks = 1
[train.compression]
outer_steps = 4
outer_lr = 0.7
kind = "int8"
[train.parameter_server]
workers = 2
grace_seconds = 2
[prove]
plan = "auto"
"""


def commit(workspace, line=LINE):
    shutil.copy(TASK, workspace.repo / "model.py")
    repositories.commit(workspace.repo, {"line.toml": line})


@pytest.mark.timeout(240)
@pytest.mark.long
def test_two_workers_and_a_server_end_in_an_ordinary_checkpoint(workspace, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    commit(workspace)
    record = run_line(workspace.repo, **workspace.where, observer=workspace.seen)
    assert record.run.verdict == "passed", (workspace.seen.notes, [each.text for each in record.events])
    assert record.plan.name == "2 x none"
    assert stage(record, "train").outputs["final_step"] == 16
    assert record.proof.tensors_equal == record.proof.tensors > 0
    assert record.proof.same_loss == "unknown"
    assert record.curve.points[-1].step == 16
    assert record.ledger.seconds["exchange"] > 0
    assert sum(each.blocks for each in record.training.workers.workers) == 8
    assert (record.training.workers.dropped, record.training.workers.refused) == (0, 0)
    texts = [event.text for event in record.events]
    assert any(text.startswith("blocks by worker 1: ") for text in texts)
    assert any("for each block of a worker" in text or "a worker, " in text for text in texts)
    assert [event.text for event in record.events if event.kind == WORKER] == []
    assert gang_of_role(record, "worker-2") == f"{record.run.id}-t201"


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_workers_of_two_ranks_and_two_servers_end_in_an_ordinary_checkpoint(workspace, monkeypatch):
    """Four megabytes of weights in shards of one, the least that a line may ask for."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    line = LINE.replace("width = 8", "width = 512").replace("ranks = 1", "ranks = 2")
    commit(workspace, line.replace("workers = 2", "workers = 2\nservers = 2\nshard_bytes = 1048576"))
    record = run_line(workspace.repo, **workspace.where, observer=workspace.seen)
    assert record.run.verdict == "passed", (workspace.seen.notes, [each.text for each in record.events])
    assert record.plan.name == "2 x ddp-2"
    assert record.proof.tensors_equal == record.proof.tensors > 0
    assert sum(each.blocks for each in record.training.workers.workers) == 8
    assert (record.training.workers.dropped, record.training.workers.refused) == (0, 0)
    assert record.gang.restarts == 0
    assert [event.text for event in record.events if event.kind == WORKER] == []


def long_line(steps):
    return LINE.replace("steps = 16", f"steps = {steps}").replace("outer_steps = 4", "outer_steps = 20")


@contextmanager
def driven(workspace):
    """A driver in a process of its own, once a worker has pushed; with the run's record."""
    home = workspace.environ["HOME"]
    command = [sys.executable, "-c", DRIVER, str(workspace.repo), home]
    driver = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    try:
        record = until(lambda: next(iter(workspace.records()), None), "a record")
        pushes = f"{record.gang_prefix}/parameters/pushes/"
        until(lambda: workspace.store.list(pushes), "a push", seconds=150)
        yield driver, record
    finally:
        driver.kill()
        driver.wait()


def until(holds, what, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.1)
    return found


@pytest.mark.timeout(300)
@pytest.mark.long
def test_driver_that_dies_leaves_all_gangs_to_the_next_one(workspace):
    commit(workspace, long_line(400))
    with driven(workspace) as (driver, record):
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        found = run_line(workspace.repo, **workspace.where, observer=workspace.seen)
    assert (found.run.id, found.run.verdict) == (record.run.id, "passed")
    assert sum(each.blocks for each in found.training.workers.workers) == 40
    assert found.gang.restarts == 0


@pytest.mark.timeout(300)
@pytest.mark.long
def test_cancelled_run_leaves_no_gang_and_says_what_is_saved(workspace):
    commit(workspace, long_line(100_000))
    with driven(workspace) as (_, record):
        ended = cancel_run(workspace.repo, record.run.id, **workspace.where, reason="enough")
    assert ended.run.verdict == "cancelled"
    launcher = open_launcher(workspace.repo, **workspace.where, store=workspace.store)
    names = [record.run.id, *worker_gangs(record).values()]
    assert [launcher.status(name).state for name in names] == ["ended"] * 3
    assert {launcher.collect(name).exit_code for name in names} == {70}
