"""JAX and TensorFlow examples through the whole line, with their own libraries: trained, killed, resumed, measured."""

import json
import os
import shutil
import subprocess

import pytest
from tests.frameworks.environment import ROOT, python_with
from tests.line.repositories import git

DEADLINE_SECONDS = 280

STRIKE = """\
import os, runpy, signal
from gangline.train.api.program import Program

def step(self, *, told=Program.step, **numbers):
    told(self, **numbers)
    if (self.rank, self.step_number, os.environ["GANGLINE_GENERATION"]) == (1, 60, "0"):
        os.kill(os.getpid(), signal.SIGKILL)

Program.step = step
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.mark.tools
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ["jax", "tensorflow"])
def test_a_killed_rank_costs_a_generation_and_the_program_continues_from_its_save(tmp_path, name):
    python = python_with(name)
    repo = shutil.copytree(ROOT / "examples" / name, tmp_path / "repo", ignore=shutil.ignore_patterns("__pycache__"))
    (repo / "strike.py").write_text(STRIKE)
    line = (repo / "line.toml").read_text()
    (repo / "line.toml").write_text(line.replace('["python", "train.py"]', '["python", "strike.py"]'))
    git(repo, "init", "--quiet")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "first")
    done = subprocess.run(
        [python, "-m", "gangline", "run", repo, "--json"],
        env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}, cwd=repo,
        capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    record = json.loads((next((repo / ".gangline").rglob("record.json"))).read_text())
    assert record["gang"]["restarts"] == 1
    assert 0 < record["metrics"]["eval_loss"]["value"] < 0.3
    losses = [point["value"] for point in record["curve"]["points"]]
    assert losses[-1] < losses[0] / 2
    events = list(map(json.loads, next((repo / ".gangline").rglob("ranks/0.jsonl")).read_text().splitlines()))
    assert [each["step"] for each in events if each["event"] == "resumed"] == [50]
    assert [each["step"] for each in events if each["event"] == "saved"][-1] == 200
