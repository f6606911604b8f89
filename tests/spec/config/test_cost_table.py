"""`optimizer.cost`: a file of the commit that becomes part of the line, or is refused by what is wrong with it."""

import json
from pathlib import Path

import pytest

from gangline.errors import ConfigError
from gangline.spec.config.load import line_digest, load_line, load_line_text
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.config.optimizer import read_optimizer

LINE = """
[project]
name = "demo"
task = "model:Demo"
[optimizer]
rule = "muon"
cost = "costs/gpu.json"
[train]
steps = 100
global_batch = 16
"""
ROW = {
    "rule": "muon/standard", "rows": 4, "columns": 8, "batch": 1, "dtype": "bfloat16", "seconds": 0.5,
    "refresh_seconds": 0.0,
}  # fmt: skip
TABLE = {"format": 1, "device": "a GPU", "torch": "2.15.0", "rows": [ROW]}


def line_with(table) -> object:
    files = {"costs/gpu.json": json.dumps(table).encode()}
    return load_line_text(LINE, file="line.toml", reader=files.get)


def test_the_content_travels_in_the_line_and_is_part_of_its_digest():
    line = line_with(TABLE)
    cost = read_matrix_rule(line.optimizer).cost
    assert (cost["file"], cost["device"], cost["rows"]) == ("costs/gpu.json", "a GPU", [ROW])
    read_optimizer(line.optimizer)
    assert line_digest(line) != line_digest(line_with({**TABLE, "rows": [{**ROW, "seconds": 0.6}]}))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "an object with format, device, torch, rows"),
        ({**TABLE, "format": 2}, "format: wanted 1, found 2"),
        ({**TABLE, "device": ""}, "device: wanted a name"),
        ({**TABLE, "rows": []}, "1 to 1000 rows"),
        ({**TABLE, "rows": [ROW] * 1001}, "1 to 1000 rows"),
        ({**TABLE, "rows": [ROW, ROW]}, r"rows\[1\]: wanted one row for each"),
        ({**TABLE, "rows": [{**ROW, "speed": 1}]}, r"rows\[0\]: wanted an object with rule"),
        ({**TABLE, "rows": [{**ROW, "rows": 9}]}, "the smaller side, found 9"),
        ({**TABLE, "rows": [{**ROW, "rows": True}]}, "a whole number, 1 or more, found true"),
        ({**TABLE, "rows": [{**ROW, "dtype": "int8"}]}, "dtype: wanted one of bfloat16, float16, float32"),
        ({**TABLE, "rows": [{**ROW, "seconds": 0.0}]}, "seconds from 1e-09 to 86400, found 0.0"),
        ({**TABLE, "rows": [{**ROW, "seconds": float("nan")}]}, "seconds from 1e-09 to 86400, found nan"),
        ({**TABLE, "rows": [{**ROW, "seconds": 1e308}]}, "seconds from 1e-09 to 86400"),
        ({**TABLE, "rows": [{**ROW, "seconds": 10**400}]}, "seconds from 1e-09 to 86400, found an integer of"),
        ({**TABLE, "rows": [{**ROW, "refresh_seconds": -1.0}]}, "seconds from 0 to 86400, found -1.0"),
    ],
)
def test_a_table_that_no_plan_could_use_is_refused_at_its_place(table, message):
    with pytest.raises(ConfigError, match=message) as caught:
        line_with(table)
    assert "optimizer.cost" in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_json_is_refused(content):
    with pytest.raises(ConfigError, match=r"optimizer.cost: wanted JSON in 'costs/gpu.json'"):
        load_line_text(LINE, file="line.toml", reader={"costs/gpu.json": content}.get)


def test_a_file_outside_of_the_repository_is_not_read(tmp_path: Path):
    (tmp_path / "secret.json").write_text(json.dumps(TABLE))
    inside = tmp_path / "repository"
    inside.mkdir()
    (inside / "line.toml").write_text(LINE.replace("costs/gpu.json", "../secret.json"))
    line = load_line(inside)
    with pytest.raises(ConfigError, match=r"a file of the commit, found '../secret.json'"):
        read_optimizer(line.optimizer)
    assert read_matrix_rule(line.optimizer).cost is None


def test_a_file_that_is_not_there_is_named():
    line = load_line_text(LINE, file="line.toml", reader=lambda _: None)
    with pytest.raises(ConfigError, match=r"a file of the commit, found 'costs/gpu.json'"):
        read_optimizer(line.optimizer)
    assert read_matrix_rule(line.optimizer).cost is None
