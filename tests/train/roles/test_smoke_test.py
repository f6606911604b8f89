"""What a fresh process says of a model folder."""

import json
import sys
from base64 import b64decode

import pytest
import torch
from safetensors.torch import save_file

from gangline.errors import ConfigError, IntegrityError, TrainingError
from gangline.train.model import published
from gangline.train.model.golden import GOLDEN, parse_golden
from gangline.train.roles import smoke_test

TASK = """
import torch
from gangline.train import Loss

class Line(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, 1)
    def forward(self, x):
        return self.linear(x)

class Task:
    def build_model(self, options):
        return Line(**options)
    def build_data(self, split, options):
        return [{"x": torch.ones(options["model"]["width"]), "y": torch.tensor(float(options["y"]))}] * 3
    def loss(self, outputs, batch):
        return Loss(total=(outputs.squeeze(-1) - batch["y"]).abs().sum(), weight=len(batch["y"]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the weights of `TASK`, its code and options beside it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "line_task", raising=False)
    model, code = tmp_path / "model", tmp_path / "code"
    model.mkdir()
    code.mkdir()
    (code / "line_task.py").write_text(TASK)
    (tmp_path / "options.json").write_text(json.dumps({"model": {"width": 4}, "y": 6}))
    (model / "config.json").write_text(json.dumps({"task": "line_task:Task", "model": {"width": 4}}))
    save_file({"linear.weight": torch.ones(1, 4), "linear.bias": torch.zeros(1)}, model / "model.safetensors")
    return model


def ask(folder, **replaced):
    beside = {"code": folder.parent / "code", "options": folder.parent / "options.json"}
    return smoke_test.smoke(folder, **beside | replaced)


def test_a_task_answers_held_out_samples(folder):
    answer = ask(folder)
    golden = parse_golden(b64decode(answer.pop("golden")))
    assert answer == {"parameters": 5, "samples": 2, "loss": 2.0}
    assert golden.inputs["x"].tolist() == [[1.0] * 4] * 2
    assert golden.outputs["output"].tolist() == [[4.0]] * 2


def test_where_members_hold_the_data_the_example_is_the_batch_and_no_data_are_opened(folder):
    options = {"model": {"width": 4}, "data_of_members": True}
    (folder.parent / "options.json").write_text(json.dumps(options))
    assert ask(folder) == {"parameters": 5}
    example = """
    def example(self, options):
        return {"x": torch.ones(options["width"]), "y": torch.tensor(6.0)}
    def build_data(self, split, options):
        raise KeyError("folder")
"""
    (folder.parent / "code" / "line_task.py").write_text(TASK + example)
    sys.modules.pop("line_task", None)
    answer = ask(folder)
    assert parse_golden(b64decode(answer.pop("golden"))).outputs["output"].tolist() == [[4.0]]
    assert answer == {"parameters": 5, "samples": 1, "loss": 2.0}


def test_a_task_that_publishes_under_other_names_gets_its_own_back(folder):
    renamed = {"linear.weight": "weight", "linear.bias": "linear.weight"}
    task = folder.parent / "code" / "line_task.py"
    task.write_text(f"{TASK}\n    def export_names(self):\n        return {renamed}\n")
    save_file({"weight": torch.ones(1, 4), "linear.weight": torch.zeros(1)}, folder / "model.safetensors")
    answer = ask(folder)
    golden = parse_golden(b64decode(answer.pop("golden")))
    assert answer == {"parameters": 5, "samples": 2, "loss": 2.0}
    assert golden.inputs["x"].tolist() == [[1.0] * 4] * 2
    assert golden.outputs["output"].tolist() == [[4.0]] * 2


HANDLER = """
import numpy as np

class Rounded:
    inputs = {"x": ("float32", (-1, 4))}
    outputs = {"sum": ("int64", (-1,))}
    def load(self, folder):
        assert (folder / "model.safetensors").is_file()
    def predict(self, batch):
        return {"sum": batch["x"].sum(axis=1).astype("int64") + 10}

class Pixels(Rounded):
    inputs = {"pixels": ("uint8", (-1, 3, -1))}
    def predict(self, batch):
        return {"sum": batch["pixels"].sum(axis=(1, 2)).astype("int64")}

class Listed(Rounded):
    def predict(self, batch):
        return [1, 2]
"""


def with_handler(folder, name):
    (folder.parent / "code" / "line_handler.py").write_text(HANDLER)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"infer": {"handler": f"line_handler:{name}"}}))


@pytest.mark.parametrize(
    ("name", "shape", "sums"), [("Rounded", (2, 4), [14, 14]), ("Pixels", (2, 3, 1), [0, 0])], ids=["holdout", "zeros"]
)
def test_the_golden_answer_is_that_of_the_handler_which_serves(folder, monkeypatch, name, shape, sums):
    monkeypatch.delitem(sys.modules, "line_handler", raising=False)
    with_handler(folder, name)
    data = b64decode(ask(folder)["golden"])
    golden = parse_golden(data)
    assert [each.shape for each in golden.inputs.values()] == [shape]
    assert {name: each.tolist() for name, each in golden.outputs.items()} == {"sum": sums}
    (folder / GOLDEN).write_bytes(data)
    assert published.check_golden(published.open_published(folder, folder.parent / "code")).startswith("the same")


def test_a_handler_that_answers_no_arrays_is_refused_before_it_is_published(folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "line_handler", raising=False)
    with_handler(folder, "Listed")
    with pytest.raises(TrainingError, match="wanted a dict of arrays from predict"):
        ask(folder)


@pytest.mark.parametrize("answer", [["linear.weight"], {"linear.weight": 3}])
def test_export_names_that_are_no_names_are_refused(folder, answer):
    task = folder.parent / "code" / "line_task.py"
    task.write_text(f"{TASK}\n    def export_names(self):\n        return {answer}\n")
    with pytest.raises(ConfigError, match="export_names of Task: wanted a dict of names by name"):
        ask(folder)


def test_a_program_of_its_own_has_its_weights_opened(folder):
    assert ask(folder, code=None, options=None) == {"parameters": 5}


def test_weights_of_another_shape_are_refused(folder):
    save_file({"linear.weight": torch.ones(1, 5), "linear.bias": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(IntegrityError, match="do not fit"):
        ask(folder)


def test_a_missing_tensor_is_refused_by_name(folder):
    save_file({"linear.weight": torch.ones(1, 4)}, folder / "model.safetensors")
    with pytest.raises(IntegrityError, match=r"linear\.bias"):
        ask(folder)


def test_weights_and_answers_that_are_not_finite_are_refused(folder):
    (folder.parent / "options.json").write_text(json.dumps({"model": {"width": 4}, "y": "inf"}))
    with pytest.raises(TrainingError, match="loss of 2"):
        ask(folder)
    save_file(
        {"linear.weight": torch.full((1, 4), float("nan")), "linear.bias": torch.zeros(1)}, folder / "model.safetensors"
    )
    with pytest.raises(TrainingError, match=r"not finite: linear\.weight"):
        ask(folder)


def test_every_dtype_reads_as_the_safetensors_library_wrote_it(folder):
    kinds = [
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int8,
        torch.uint8,
        torch.bool,
    ]
    wrote = {str(kind): torch.arange(6).reshape(2, 3).to(kind) for kind in kinds} | {"empty": torch.empty(0, 3)}
    save_file(wrote, folder / "model.safetensors")
    read = published.read_weights(folder / "model.safetensors")
    assert read.keys() == wrote.keys()
    assert all(torch.equal(read[name], wrote[name]) and read[name].dtype == wrote[name].dtype for name in wrote)


def test_the_command_prints_one_line_of_json_and_ends_with_the_errors_code(folder, capsys):
    arguments = [str(folder), "--code", str(folder.parent / "code"), "--options", str(folder.parent / "options.json")]
    assert smoke_test.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == 2.0
    (folder / "model.safetensors").write_bytes(b"\x80\x04 no tensors")
    assert smoke_test.main(arguments) == IntegrityError.exit_code
    assert "header" in capsys.readouterr().err


def test_a_code_that_the_model_chose_is_a_failure_of_its_own(folder, capsys):
    (folder.parent / "code" / "line_task.py").write_text("import sys\nsys.exit(20)\n")
    beside = ["--code", str(folder.parent / "code"), "--options", str(folder.parent / "options.json")]
    assert smoke_test.main([str(folder), *beside]) == 30
    assert "the model called sys.exit(20)" in capsys.readouterr().err
