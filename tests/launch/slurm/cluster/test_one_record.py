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


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The example with some text to read."""
    repo = tmp_path_factory.mktemp("one") / "bytegpt"
    shutil.copytree(ROOT / "examples" / "bytegpt", repo)
    git(repo, "init", "--quiet", "--initial-branch=main")
    text = {f"src/{path.name}": path.read_text() for path in (ROOT / "src/gangline/train/loop").glob("*.py")}
    commit(repo, text)
    return repo


@pytest.fixture(scope="module")
def site(slurm, repository):
    path = repository.parent / "site.toml"
    via = json.dumps(slurm.via)
    path.write_text(f'[slurm]\nshared = "{path.parent}"\npartition = "cpu"\nvia = {via}\n')
    return path


@pytest.fixture(scope="module")
def here(repository, site):
    """Losses on this machine."""
    return losses(repository, site, "--target", "local")[0]


def losses(repo: Path, site: Path, *words: str, meanwhile=lambda: None) -> tuple[list[float], str]:
    """Losses of a run until its training has ended, and what the command printed."""
    shutil.rmtree(repo / ".gangline", ignore_errors=True)
    asked = ("--until", "train", "--set", "train.ranks=4", "--site", str(site), *words)
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "gangline", "run", *asked]
    with subprocess.Popen(command, cwd=repo, env=environ, stdout=subprocess.PIPE, text=True) as run:
        meanwhile()
        said, _ = run.communicate(timeout=300)
    assert run.returncode == 0, said
    (metrics,) = (repo / ".gangline" / "store" / "runs").glob("bytegpt/*/*/gang/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1)), "no step is lost, none is repeated"
    return [row["loss"] for row in rows], said


def test_a_commit_has_the_losses_of_this_machine_on_two_servers_to_the_last_digit(repository, site, here):
    there, said = losses(repository, site, "--target", "slurm")
    assert f"{len(CPU_SERVERS)} servers x 2 CPU ranks · partition cpu" in said
    assert there == here


def test_a_preempted_gang_has_them_too(slurm, repository, site, here):
    def preempt():
        events = f"gangs-{os.getuid()}/*/**/out/ranks/0.jsonl"
        slurm.until(lambda: any('"step": 8,' in each.read_text() for each in site.parent.glob(events)), seconds=120)
        script = site.parent / "urgent.sh"
        script.write_text("#!/bin/sh\nsleep 2\n")
        slurm.submit(script, "--partition=urgent", "--nodelist=d1,d2", "--nodes=2", "--ntasks=2", "--exclusive")

    shutil.rmtree(site.parent / f"gangs-{os.getuid()}", ignore_errors=True)
    there, said = losses(repository, site, "--target", "slurm", meanwhile=preempt)
    assert "again, life 2 of 3" in said
    assert there == here
