"""A published model is opened from its folder, by its task or a handler, and gives its golden answer."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.infer.model_folder import code, write_model

from gangline.errors import ConfigError, IntegrityError, TrainingError
from gangline.storage.objects.code_layer import unpack
from gangline.train.model.golden import GOLDEN, MAX_GOLDEN_BYTES, Golden, golden_bytes, parse_golden
from gangline.train.model.published import TensorSpec, check_golden, open_published, read_all_weights

HANDLER = """
import numpy as np

class Handler:
    inputs = {"a": ("float32", (-1,))}
    outputs = {"b": ("float32", (-1,))}
    def load(self, folder):
        self.factor = float((folder / "factor").read_text())
    def predict(self, batch):
        return {"b": batch["a"] * self.factor}

class Half:
    inputs = {}
    def load(self, folder): pass

class Wide(Handler):
    inputs = {"a": ("float32", (4,))}
"""


@pytest.fixture
def layer(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("line_task", "my_handler"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    unpack(code(), tmp_path / "code")
    (tmp_path / "code" / "my_handler.py").write_text(HANDLER)
    yield tmp_path / "code"
    for name in ("line_task", "my_handler"):
        sys.modules.pop(name, None)


def test_a_task_answers_and_its_golden_sample_says_what_it_takes(tmp_path, layer):
    model = open_published(write_model(tmp_path / "model"), layer)
    assert model.inputs == {"x": TensorSpec("float32", (-1, 4))}
    assert model.outputs == {"output": TensorSpec("float32", (-1, 1))}
    assert model.predict({"x": np.full((3, 4), 2, "float32")})["output"].ravel().tolist() == [8.0] * 3
    assert check_golden(model).startswith("the same within")


def test_another_golden_answer_is_refused_and_an_older_version_is_unknown(tmp_path, layer):
    folder = write_model(tmp_path / "model", answer=4.01)
    with pytest.raises(IntegrityError, match="golden sample is answered otherwise"):
        check_golden(open_published(folder, layer))
    (folder / GOLDEN).unlink()
    model = open_published(folder, layer)
    assert (model.inputs, check_golden(model)) == ({}, "unknown: the version has no golden sample")


def test_the_golden_sample_is_no_weight(tmp_path):
    assert set(read_all_weights(write_model(tmp_path / "model"))) == {"linear.weight", "linear.bias"}


def test_weights_of_another_model_are_refused(tmp_path, layer):
    folder = write_model(tmp_path / "model")
    save_file({"linear.weight": torch.ones(1, 5)}, folder / "model.safetensors")
    with pytest.raises(IntegrityError, match="do not fit"):
        open_published(folder, layer)


def test_code_that_does_not_import_is_an_error_of_the_model(tmp_path, layer):
    (layer / "line_task.py").write_text("raise RuntimeError('broken')")
    with pytest.raises(TrainingError, match="broken"):
        open_published(write_model(tmp_path / "model"), layer)


def program(tmp_path, **infer):
    folder = tmp_path / "model"
    folder.mkdir()
    plain = {"format": "gangline-program/1", "task": None, "infer": infer}
    (folder / "config.json").write_text(json.dumps(plain))
    (folder / "factor").write_text("3")
    return folder


def test_a_program_answers_by_its_handler(tmp_path, layer):
    model = open_published(program(tmp_path, handler="my_handler:Handler"), layer)
    assert model.inputs == {"a": TensorSpec("float32", (-1,))}
    assert model.predict({"a": np.ones(2, "float32")})["b"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (None, "names no infer.handler"),
        ("my_handler:Half", r"\['predict', 'outputs'\] missing"),
        ("my_handler:Missing", "wanted a class"),
        ("my_handler:Wide", "-1, the batch, as first size"),
    ],
)
def test_a_handler_that_lacks_something_is_refused(tmp_path, layer, handler, says):
    with pytest.raises(ConfigError, match=says):
        open_published(program(tmp_path, handler=handler), layer)


def test_a_language_model_is_named_to_vllm(tmp_path, layer):
    folder = program(tmp_path)
    (folder / "out").mkdir()
    (folder / "out" / "config.json").write_text("{}")
    save_file({"w": torch.ones(1)}, folder / "out" / "model.safetensors")
    with pytest.raises(ConfigError, match="vllm serve FOLDER/out --load-format safetensors"):
        open_published(folder, layer)


def test_golden_samples_are_read_as_written_and_large_ones_are_not_kept():
    golden = Golden({"x": np.arange(6, dtype="int64").reshape(2, 3)}, {"y": np.ones((2, 1), "float16")})
    found = parse_golden(golden_bytes(golden))
    assert found.inputs["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.outputs["y"].dtype == np.float16
    assert golden_bytes(Golden({"x": np.zeros(MAX_GOLDEN_BYTES // 4 + 1, "float32")}, {})) is None
    with pytest.raises(IntegrityError):
        parse_golden(b"no file of ours")
