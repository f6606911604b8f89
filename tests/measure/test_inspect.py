"""The child process that looks at machine and model: one JSON object, or a reason and its number."""

import json
import subprocess
import sys

import pytest
from tests.train.gang import ROOT

from gangline.errors import ConfigError
from gangline.measure.inspect import main
from gangline.measure.machine import machine


def test_bytegpt_has_875264_parameters():
    options = json.dumps({"layers": 4, "width": 128, "context": 128})
    command = [sys.executable, "-m", "gangline.measure.inspect", "--task", "model:ByteGPT", "--options", options]
    folder = ROOT / "examples" / "bytegpt"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["parameters"], found["builds_optimizer"]) == (875_264, False)
    assert found["named"][0] == {"name": "token.weight", "shape": [256, 128], "module": "embedding"}
    assert found["largest_block_parameters"] == 198_272
    assert found["obstacles"].keys() == {"ep"}, "it has no experts, and can be cut in every other way"
    assert found["cores"] >= 1
    assert found["memory_bytes"] > 0


@pytest.mark.parametrize(
    ("source", "code", "reason"),
    [
        ("print('noise')\nclass Task: pass\n", 10, "methods"),
        ("print('noise')\nraise RuntimeError('at import')\n", 30, "py:2) raised RuntimeError: at import"),
        ("print('noise')\nraise SystemExit(20)\n", 30, "py:2) raised SystemExit: 20"),
    ],
)
def test_reason_is_the_last_line_and_the_code_its_class(tmp_path, monkeypatch, capsys, source, code, reason):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"task_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(source)
    assert main(["--task", f"{name}:Task"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert "noise" in said.err
    assert reason in said.err.splitlines()[-1]


@pytest.mark.parametrize(("last", "code"), [("1.0", 0), ("float('nan')", 10)])
def test_a_schedule_is_asked_about_its_steps(tmp_path, monkeypatch, capsys, last, code):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"rates_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(f"def rate(step, steps): return {last} if step == 12 else 0.5\n")
    assert main(["--schedule", f"{name}:rate", "--steps", "12"]) == code
    assert ("(12, 12): wanted a finite ratio" in capsys.readouterr().err) == bool(code)


def test_a_command_without_a_gpu_needs_no_torch(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("gangline.measure.inspect.find_spec", lambda _: None)
    assert main([]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["devices"], found["torch"]) == ([], None)
    assert found["cores"] >= 1
    assert main(["--task", "model:ByteGPT"]) == ConfigError.exit_code
    assert "install gangline[train]" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nvidia0", "kfd", "dxg", "nvmap"])
def test_where_there_may_be_a_gpu_torch_is_asked(tmp_path, monkeypatch, name):
    (tmp_path / name).touch()
    assert machine(tmp_path)["torch"]
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=rf"as there is {tmp_path}/{name}"):
        machine(tmp_path)
