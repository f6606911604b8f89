"""One commit of a federation through the whole line, with members that are simulated and with those of NVFlare."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.flare.federation import ADMIN, TASK, federation_below
from tests.line import repositories

from gangline.line.stages.run_line import run_line
from gangline.signing.keys import signing_key
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


CARRIED_LINE = """\
[project]
name = "rows"
task = "sums:Sums"
[optimizer.elementwise]
rule = "sgd"
lr = 0.5
[train]
steps = 20
global_batch = 20
[federated]
local_steps = 5
quorum = 3
secure_sum = true
clip_norm = 10.0
[[gate.quality]]
metric = "accuracy"
better = "higher"
limit = 0.8
"""
SITE = """\
[federation]
kit = "{kit}"
admin = "secret:file:{admin}"
members = ["aachen", "bremen", "celle"]
"""


@pytest.fixture
def federation(tmp_path_factory):
    pytest.importorskip("nvflare", reason="nvflare is not installed")
    with federation_below(tmp_path_factory.mktemp("federation")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_gangline_run_over_real_members_passes_its_gate_and_publishes(workspace, federation):
    """The command as it is typed: NVFlare's server, three clients, their sandboxed ranks, and then the line's end."""
    workspace.environ |= {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    key = signing_key(workspace.site, workspace.environ)
    for name in federation.names:
        federation.join(name, signer=key)
        federation.start(name)
    repositories.commit(workspace.repo, {"sums.py": TASK, "line.toml": CARRIED_LINE})
    site = workspace.repo.parent / "site.toml"
    site.write_text(SITE.format(kit=federation.kits / "localhost", admin=federation.kits / ADMIN))
    command = [sys.executable, "-m", "gangline", "run", str(workspace.repo), "--site", str(site)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=workspace.environ, timeout=800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "PASSED" in done.stdout
    [record] = workspace.records()
    assert record.run.verdict == "passed"
    assert {stage(record, name).state for name in STAGES} == {"done"}
    assert record.metrics["accuracy"].value > 0.8
    assert next(each for each in record.gates if each.name == "quality:accuracy").verdict == "yes"
    assert record.proof.tensors_equal == record.proof.tensors == 2
    found = record.federated
    assert (found.roster, found.merged, found.rounds, found.secure_sum) == (3, 4, 4, True)
    assert found.engine.startswith("nvflare")
    assert stage(record, "publish").outputs["version"] == 1
    card = next(each for each in record.artifacts if each.kind == "card")
    assert "Data stayed with their members: 3 members" in workspace.store.get(card.key).data.decode()
