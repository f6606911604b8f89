"""A line that trains a task on a version of a data set: workers, record, evaluation, proof, a published model."""

import pytest
from tests.line import repositories
from tests.train.sets.packed import dataset_of

from gangline.data.versions import set_alias, write_dataset
from gangline.line.stages.run_line import run_line
from gangline.report.run.markdown import render_markdown
from gangline.signing.keys import signing_key

LINE = """\
[project]
name = "pairs"
task = "model:Pairs"
[data]
shards = ["dataset:numbers"]
window = 2
workers = 1
[model]
width = 4
[optimizer.elementwise]
rule = "adamw"
lr = 0.01
[train]
steps = 6
global_batch = 8
ranks = 2
strategy = "ddp"
[prove]
replay_steps = 3
"""
TASK = """\
from torch import nn
from torch.nn.functional import cross_entropy

from gangline.train import Loss


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, width), nn.Linear(width, 50)

    def forward(self, tokens):
        return self.head(self.embed(tokens[:, 0]))


class Pairs:
    def build_model(self, options):
        return Net(**options)

    def build_data(self, split, options):
        return options["dataset"]

    def loss(self, outputs, batch):
        return Loss(total=cross_entropy(outputs, batch["tokens"][:, 1], reduction="sum"), weight=len(outputs))
"""


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_task_that_returns_its_data_set_passes_every_stage(workspace, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = dataset_of(workspace.store, shards=5, rows=7)
    key = signing_key(workspace.site, workspace.environ)
    trusted = {key.key_id: key.public}
    write_dataset(workspace.store, made, key, trusted)
    set_alias(workspace.store, made, "latest", key, trusted, who="a@b")
    repositories.commit(workspace.repo, {"model.py": TASK, "line.toml": LINE})
    record = run_line(workspace.repo, **workspace.where, observer=workspace.seen)
    assert record.run.verdict == "passed", record.run
    assert made.version in str(record.inputs)
    assert record.training.samples.trained == 48
    assert (record.training.samples.lost, record.training.samples.repeated) == (0, 0)
    assert record.proof.tensors_equal == record.proof.tensors
    assert record.proof.replay_difference < 1e-4
    assert record.metrics["eval_loss"].value > 0
    assert record.diagnoses[0].kind == "bound"
    assert "% of reads cached" in record.diagnoses[0].evidence
    assert f"bound by {record.diagnoses[0].names[0]}" in render_markdown(record)
