"""The child process that looks at machine and model: one JSON object, or a reason and its number."""

import json
import subprocess
import sys

import pytest
from tests.train.gang import ROOT


def inspect(*arguments, cwd):
    command = [sys.executable, "-m", "gangline.train.estimate.inspect", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_bytegpt_has_875264_parameters():
    options = json.dumps({"layers": 4, "width": 128, "context": 128})
    done = inspect("--task", "model:ByteGPT", "--options", options, cwd=ROOT / "examples" / "bytegpt")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["parameters"], found["parameter_bytes"]) == (875_264, 4 * 875_264)
    assert found["largest_block_parameters"] == 198_272
    assert found["cores"] >= 1
    assert found["memory_bytes"] > 0


@pytest.mark.parametrize(
    ("source", "code", "reason"),
    [
        ("print('noise')\nclass Task: pass\n", 10, "methods"),
        ("raise RuntimeError('at import')\n", 30, "RuntimeError: at import"),
    ],
)
def test_reason_is_the_last_line_and_the_code_its_class(tmp_path, source, code, reason):
    (tmp_path / "model.py").write_text(source)
    done = inspect("--task", "model:Task", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert reason in done.stderr.splitlines()[-1]
