"""The whole line on real parts: a small GPT on two ranks, DDP then FSDP, to a signed model."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load
from tests.line import repositories

from gangline.line.stages.run_line import run_line
from gangline.spec.record import STAGES
from gangline.spec.run_flags import stage

BYTEGPT = Path(__file__).parents[3] / "examples" / "bytegpt"
SMALL = [
    "model.layers=1",
    "model.width=32",
    "model.context=32",
    "train.steps=6",
    "train.ranks=2",
    "train.strategy=ddp",
    "evaluate.seeds=1",
    "prove.plan=fsdp",
    "prove.replay_steps=6",
]
RENAMED = 'ByteGPT.export_names = lambda self: {"token.weight": "wte.weight"}\n'


@pytest.mark.timeout(240)
@pytest.mark.long
def test_a_small_gpt_passes_every_stage_under_two_plans_and_is_published(workspace, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shutil.copytree(BYTEGPT, workspace.repo, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    text, model = "the quick brown fox jumps over the lazy dog\n" * 400, (BYTEGPT / "model.py").read_text()
    line = repositories.line_with((BYTEGPT / "line.toml").read_text(), *SMALL)
    repositories.commit(workspace.repo, {"src/text.py": text, "model.py": f"{model}\n{RENAMED}", "line.toml": line})
    record = run_line(workspace.repo, **workspace.where, observer=workspace.seen)
    assert record.run.verdict == "passed"
    assert {stage(record, name).state for name in STAGES} == {"done"}
    assert (record.plan.name, record.proof.plan) == ("ddp-2", "fsdp-2")
    assert record.proof.tensors_equal == record.proof.tensors > 10
    assert record.proof.replay_steps == 6
    assert record.proof.replay_difference < 1e-4
    assert record.proof.same_loss == "yes"
    assert record.metrics["eval_loss"].value > 0
    assert [row.rank for row in record.ranks] == [0, 1]
    assert record.ledger.allocated_seconds == pytest.approx(sum(record.ledger.seconds.values()))
    assert record.ledger.seconds["compute"] > 0
    outputs = stage(record, "publish").outputs
    assert (outputs["model"], outputs["version"]) == ("bytegpt", 1)
    keys = {each.kind: each.key for each in record.artifacts}
    assert {"model", "signature"} <= keys.keys()
    published = load(workspace.store.get(keys["model"]).data)
    assert {"wte.weight", "position.weight"} <= published.keys()
    assert "token.weight" not in published
    assert "model/bytegpt/v1" in repositories.git(workspace.repo, "tag", "--list").splitlines()
