"""Role score: every row in order, the same bytes whatever was scored before, columns that are the model's."""

import numpy as np
import pyarrow as pa
import pytest

from gangline.data.arrow_rows import ArrowRows
from gangline.data.arrow_shards import ROW, check_shard
from gangline.errors import ConfigError, TrainingError
from gangline.train.model.published import PublishedModel, TensorSpec
from gangline.train.roles.score import check_columns, score_shard


def doubling(batch):
    return {"y": 2 * batch["x"], "n": np.array([len(batch["x"])] * len(batch["x"]))}


def model(predict=doubling, **inputs):
    return PublishedModel(inputs=inputs or {"x": TensorSpec("float32", (-1, 2))}, outputs={}, predict=predict)


def write_shard(path, rows=10, kind=np.float32):
    values = np.arange(2 * rows, dtype=kind)
    x = pa.FixedSizeListArray.from_arrays(pa.array(values), 2)
    table = pa.RecordBatch.from_arrays([x, pa.array([f"text {n}" for n in range(rows)])], ["x", "text"])
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_batch(table)
    return path


def test_every_row_in_order_with_its_number(tmp_path):
    into = tmp_path / "out.arrow"
    assert score_shard(model(), write_shard(tmp_path / "in.arrow"), into, batch=4) == 10
    with ArrowRows(into) as rows:
        found = [rows[index] for index in range(10)]
    assert [int(each[ROW]) for each in found] == list(range(10))
    assert [each["y"].tolist() for each in found] == [[4.0 * n, 4.0 * n + 2] for n in range(10)]
    assert [int(each["n"]) for each in found] == [4] * 8 + [2] * 2
    assert check_shard(into, "out")[1] == 10
    assert list(tmp_path.glob("*.part")) == []


def test_the_same_bytes_again_and_only_wanted_outputs(tmp_path):
    shard = write_shard(tmp_path / "in.arrow", rows=9000)
    for name in ("a", "b"):
        score_shard(model(), shard, tmp_path / name, batch=64, outputs=("y",))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert [name for name, _ in check_shard(tmp_path / "a", "a")[0]] == [ROW, "y"]


@pytest.mark.parametrize(
    ("scored", "error", "said"),
    [
        (model(lambda batch: {"y": batch["x"][:1]}), TrainingError, "wanted"),
        (model(lambda batch: {"row": batch["x"]}), TrainingError, "none called row"),
        (model(lambda batch: 1 / 0), TrainingError, "failed at row 0: ZeroDivisionError"),
        (model(text=TensorSpec("float32", (-1,))), ConfigError, "no inputs of the model"),
    ],
)
def test_what_no_data_set_is_made_of(tmp_path, scored, error, said):
    if said == "wanted":
        scored = model(lambda batch: {"y": batch["x"][:1], "z": batch["x"]})
    with pytest.raises(error, match=said):
        score_shard(scored, write_shard(tmp_path / "in.arrow"), tmp_path / "out.arrow", batch=4)
    assert not (tmp_path / "out.arrow").exists()


def test_outputs_of_another_width_are_no_column(tmp_path):
    scored = model(lambda batch: {"y": np.ones((len(batch["x"]), int(batch["x"][0, 0]) + 1))})
    with pytest.raises(TrainingError, match="different types"):
        score_shard(scored, write_shard(tmp_path / "in.arrow"), tmp_path / "out.arrow", batch=4)


def test_an_output_that_is_not_there_and_columns_that_are_missing(tmp_path):
    with pytest.raises(ConfigError, match="the model has n, y"):
        score_shard(model(), write_shard(tmp_path / "in.arrow"), tmp_path / "out", batch=4, outputs=("z",))
    with pytest.raises(ConfigError, match="takes x, the data set has text: x missing"):
        check_columns(model(), ["text"])
    with pytest.raises(ConfigError, match="publish it again"):
        check_columns(PublishedModel(inputs={}, outputs={}, predict=doubling), ["x"])
