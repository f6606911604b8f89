"""Ranks on GPUs use a stated network as its certificate counts; torch is a stand-in, as GPUs are rare."""

import json

import pytest
from tests.line import repositories
from tests.line.stages.test_other_gpus import H100, STAND_IN

from gangline.line.gangs.logs import stored_lines
from gangline.spec.run_flags import stage

PROGRAM = f"{STAND_IN % H100['name']}{repositories.PROGRAM}print(json.dumps(dict(os.environ)))\n"
LINE = repositories.LINE + '[train.env]\nNCCL_IB_QPS_PER_CONNECTION = "8"\n'
FABRIC = '[fabric]\npath_policy = "hash"\nconnections = 4\ngroups = [{ name = "g", servers = "a[1-2]" }]\n'


@pytest.fixture
def workspace(workspace, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    (tmp_path / "fabric.toml").write_text(FABRIC)
    workspace.environ["GANGLINE_FABRIC"] = str(tmp_path / "fabric.toml")
    workspace.devices = (H100,)
    repositories.commit(workspace.repo, {"answer.py": PROGRAM, "line.toml": LINE})
    return workspace


def test_a_rank_has_the_declared_paths_but_what_the_line_sets_and_the_record_says_so(workspace):
    record = workspace.run()
    (printed,) = [each for each in stored_lines(workspace.store, record.gang_prefix, "train", 0) if each[0] == "{"]
    had = {name: value for name, value in json.loads(printed).items() if name.startswith("NCCL_")}
    ours = {"NCCL_CROSS_NIC": "0", "NCCL_IB_SPLIT_DATA_ON_QPS": "1"}
    assert had == ours | {"NCCL_IB_QPS_PER_CONNECTION": "8"}
    assert stage(record, "plan").outputs["environment"] == ours
    assert [event.text for event in record.events if event.kind == "network"] == [
        "the line sets NCCL_IB_QPS_PER_CONNECTION=8, not 4 as fabric.toml states and the plan counts",
        "ranks get NCCL_CROSS_NIC=0 NCCL_IB_SPLIT_DATA_ON_QPS=1, as fabric.toml states the network",
    ]
