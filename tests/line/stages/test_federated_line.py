"""One commit of a federation through the whole line, with members that are simulated."""

import shutil
from pathlib import Path

import pytest
from tests.line import repositories

from gangline.line.stages.run_line import run_line
from gangline.spec.record import STAGES
from gangline.spec.run_flags import stage

CODE = Path(__file__).parents[2] / "train" / "code"
LINE = """\
[project]
name = "federation"
task = "model:Tiny"
[optimizer.elementwise]
rule = "sgd"
lr = 0.05
[train]
steps = 6
global_batch = 8
ranks = 2
[federated]
local_steps = 2
quorum = 3
secure_sum = true
clip_norm = 1.0
[federated.simulate]
members = 3
[[gate.quality]]
metric = "error"
better = "lower"
limit = 100.0
"""


@pytest.mark.timeout(240)
def test_a_simulated_federation_passes_every_stage_and_is_published(workspace, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shutil.copy(CODE / "model.py", workspace.repo / "model.py")
    repositories.commit(workspace.repo, {"model.py": (CODE / "model.py").read_text(), "line.toml": LINE})
    repositories.settle_inventory(workspace.repo, ())
    record = run_line(workspace.repo, **workspace.where, observer=workspace.seen)
    assert record.run.verdict == "passed", record.run.reason
    assert {stage(record, name).state for name in STAGES} == {"done"}
    assert record.plan.name == "fedavg-3"
    assert record.proof.tensors_equal == record.proof.tensors > 10
    found = record.federated
    assert (found.roster, found.merged, found.rounds, found.lost, found.secure_sum) == (3, 3, 3, 0, True)
    assert found.answered == (3.0, 3.0, 3.0)
    assert [point.step for point in record.curve.points][-1] == 6
    assert record.plan.measured.step_seconds is None, "a round is no step, and its seconds are none"
    assert stage(record, "publish").outputs["version"] == 1
    card = next(each for each in record.artifacts if each.kind == "card")
    assert "Members were simulated on these data" in workspace.store.get(card.key).data.decode()
