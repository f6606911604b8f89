"""`gangline score` from a published version to a signed data set, and what it refuses."""

import json

import numpy as np
import pyarrow as pa
import pytest
from tests.registry.passed_run import copy_of, template
from typer.testing import CliRunner

from gangline.cli.main import app
from gangline.data.arrow_rows import ArrowRows
from gangline.data.versions import LATEST, resolve_dataset, set_alias, write_dataset
from gangline.errors import GanglineError
from gangline.signing.record_seal import Sealer
from gangline.spec.dataset import Dataset, DatasetShard
from gangline.storage.objects.blobs import PREFIX, put_blob


@pytest.fixture
def published(tmp_path, tmp_path_factory, monkeypatch):
    """A repository whose model has a version, with the data set `bytes` of rows that it takes."""
    workspace = copy_of(template(tmp_path_factory, "published")[0], tmp_path / "root")
    for name, value in workspace.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(workspace.repo)
    write_rows(workspace, "bytes", "tokens")
    write_rows(workspace, "pictures", "pixels")
    return workspace


def write_rows(workspace, name, column):
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(5 * 16) % 250, pa.uint16()), 16)
    table = pa.RecordBatch.from_arrays([values], [column])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_batch(table)
    data = sink.getvalue().to_pybytes()
    shard = DatasetShard(
        path="0.arrow", sha256=put_blob(workspace.store, data).removeprefix(PREFIX), size_bytes=len(data), rows=5
    )  # fmt: skip
    made = Dataset(name=name, num_samples=5, schema=((column, "list"),), shards=(shard,))
    write_dataset(workspace.store, made, workspace.key, trusted(workspace))
    set_alias(workspace.store, made, LATEST, workspace.key, trusted(workspace), who="t")


def trusted(workspace):
    return Sealer.of(workspace.site, workspace.environ).trusted


def call(*arguments):
    result = CliRunner().invoke(app, ["score", *arguments])
    if isinstance(result.exception, GanglineError):
        return result.exception.exit_code, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.long
def test_outputs_are_a_signed_version_and_a_second_call_makes_the_same(published):
    code, text = call("bytegpt/1", "dataset:bytes", "--to", "scored", "--json")
    assert code == 0, text
    version = json.loads(text)["version"]
    made = resolve_dataset(published.store, version, trusted(published))
    assert made.origin.model == "bytegpt 1"
    assert made.origin.dataset.startswith("bytes@")
    with ArrowRows(published.files / made.shards[0].key) as rows:
        assert len(rows) == 5
        assert int(rows[4]["row"]) == 4
    code, text = call("bytegpt/1", "dataset:bytes", "--to", "scored")
    assert code == 0, text
    assert f"from {made.origin.model} and {made.origin.dataset}" in text
    assert resolve_dataset(published.store, "scored", trusted(published)) == made


def test_what_cannot_be_scored(published):
    code, text = call("bytegpt/1", "dataset:pictures", "--to", "scored")
    assert code == 10, text
    assert "the model takes tokens, the data set has pixels" in text
    assert call("bytegpt/1", "dataset:bytes", "--to", "bytes")[0] == 10
    assert call("bytegpt/7", "dataset:bytes", "--to", "scored")[0] == 2
    assert call("bytegpt/1", "dataset:none", "--to", "scored")[0] == 10
    weights = next(each for each in published.files.rglob("model.safetensors") if "/model/" in str(each))
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert call("bytegpt/1", "dataset:bytes", "--to", "scored")[0] == 50
