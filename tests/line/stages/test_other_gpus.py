"""A run whose ranks computed on other GPUs than its plan is for; torch is a stand-in, as GPUs are rare."""

import pytest
from tests.line import repositories

from gangline.spec.run_flags import stage

H100 = {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30, "count": 1, "has_bf16": True}
STAND_IN = """\
import sys, types
def cuda(name):
    return types.SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 2, get_device_name=lambda at: name if at == 0 else "unused",
        max_memory_reserved=lambda at: 1 << 30 if at == 0 else 0)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda(%r))
"""


def commit(workspace, name):
    program = repositories.PROGRAM.replace('"step_seconds": 0.01', '"step_seconds": 0.01, "mfu": 0.4')
    repositories.commit(workspace.repo, {"answer.py": STAND_IN % name + program})


def said(record):
    return [event.text for event in record.events if event.kind == "gpus"]


@pytest.fixture
def workspace(workspace, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    workspace.devices = (H100,)
    return workspace


def test_the_record_has_the_gpus_that_ran_and_says_that_forecast_and_mfu_do_not_hold(workspace):
    commit(workspace, "NVIDIA A100-SXM4-80GB")
    record = workspace.run()
    assert (record.plan.device_name, record.ran.gpus) == ("NVIDIA H100 80GB HBM3", ("NVIDIA A100-SXM4-80GB",))
    words = (
        "ranks computed on NVIDIA A100-SXM4-80GB, and the plan is for NVIDIA H100 80GB HBM3: its forecast does not hold"
    )
    assert said(record) == [words]
    assert "mfu" not in record.metrics
    repositories.commit(workspace.repo, {"README.md": "words"})
    taken = workspace.run()
    assert (stage(taken, "train").state, said(taken), taken.ran.gpus) == ("taken", [words], record.ran.gpus)


def test_gpus_of_the_plan_need_no_word(workspace):
    commit(workspace, H100["name"])
    record = workspace.run()
    assert (said(record), record.ran.gpus, record.metrics["mfu"].value) == ([], (H100["name"],), 0.4)
