"""SL5: one commit of `examples/bytegpt`, on this machine and on two servers of Slurm, has the same losses."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.launch.slurm.cluster.configuration import CPU_SERVERS
from tests.line.repositories import commit, git

ROOT = Path(__file__).parents[4]
pytestmark = pytest.mark.tools
STEPS = 40


@pytest.fixture
def repository(tmp_path):
    """The example with some text to read."""
    repo = tmp_path / "bytegpt"
    shutil.copytree(ROOT / "examples" / "bytegpt", repo)
    git(repo, "init", "--quiet", "--initial-branch=main")
    text = {f"src/{path.name}": path.read_text() for path in (ROOT / "src/gangline/train/loop").glob("*.py")}
    commit(repo, text)
    return repo


def losses(repo: Path, site: Path, *words: str) -> tuple[list[float], str]:
    """Losses of a run until its training has ended, and what the command printed."""
    shutil.rmtree(repo / ".gangline", ignore_errors=True)
    asked = ("--until", "train", "--set", "train.ranks=4", "--site", str(site), *words)
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "gangline", "run", *asked]
    done = subprocess.run(command, cwd=repo, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (metrics,) = (repo / ".gangline" / "store" / "runs").glob("bytegpt/*/*/gang/metrics.jsonl")
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()], done.stdout


def test_a_commit_has_the_losses_of_this_machine_on_two_servers_to_the_last_digit(slurm, repository, tmp_path):
    site = tmp_path / "site.toml"
    via = json.dumps(slurm.via)
    site.write_text(f'[slurm]\nshared = "{tmp_path}"\npartition = "cpu"\nvia = {via}\n')
    there, said = losses(repository, site, "--target", "slurm")
    assert f"{len(CPU_SERVERS)} servers x 2 CPU ranks · partition cpu" in said
    here, _ = losses(repository, site, "--target", "local")
    assert there == here
    assert len(here) == STEPS
