"""Workers and servers of one run as real gangs, from the commit to the verdict."""

import shutil
from pathlib import Path

import pytest
from tests.line import repositories

from gangline.line.gangs.logs import gang_of_role
from gangline.line.stages.run_line import run_line
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
    workers = stage(record, "train").outputs["workers"]
    assert sum(each["blocks"] for each in workers["workers"]) == 8
    assert (workers["dropped"], workers["refused"]) == (0, 0)
    texts = [event.text for event in record.events]
    assert any(text.startswith("blocks by worker 1: ") for text in texts)
    assert any("for each block of a worker" in text or "a worker, " in text for text in texts)
    assert gang_of_role(record, "worker-2") == f"{record.run.id}-t201"
