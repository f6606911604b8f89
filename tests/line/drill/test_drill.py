"""A rehearsal on two real ranks, from the strike to the record."""

import shutil
from pathlib import Path

import pytest
from tests.line.registry.desk import EXAMPLE, git

from gangline import procfs
from gangline.errors import ConfigError, UsageError
from gangline.line import launchers, runs
from gangline.line.drill.run import drill
from gangline.spec.site import Site

LINE = """
[project]
name = "tiny"
task = "model:ByteGPT"
[data]
text = ["repo:*.py"]
[model]
layers = 1
width = 32
context = 32
[optimizer.elementwise]
rule = "adamw"
lr = 1e-3
[train]
steps = 60
global_batch = 8
ranks = 2
strategy = "ddp"
[train.checkpoint]
every = 10
"""


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    shutil.copy(EXAMPLE, folder / "model.py")
    shutil.copy(Path(__file__), folder / "text.py")
    (folder / "line.toml").write_text(LINE)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def rehearse(repo, name, **arguments):
    environ = {"HOME": str(repo.parent), "XDG_CONFIG_HOME": str(repo.parent / "config")}
    told = []
    report = drill(name, repo=repo, site=Site(), environ=environ, tell=told.append, **arguments)
    assert tuple(told) == report.lines
    return report, runs.find_run(runs.open_site_store(repo, Site(), environ), report.run)


@pytest.mark.slow
@pytest.mark.row("T1")
def test_a_killed_rank_comes_back_and_the_record_says_so(repo):
    report, record = rehearse(repo, "kill-rank", rank=1, step=25)
    assert (report.exit_code, report.drill.result) == (0, "held"), report.lines
    assert record.drills == (report.drill,)
    assert record.run.verdict == "passed"
    assert record.stages["publish"].state == "skipped"
    assert "drilled" in record.stages["publish"].message
    assert report.drill.lost_steps <= 20
    assert record.gang.restarts == 1
    assert record.ledger.seconds["drill"] > 0
    assert sum(record.ledger.seconds.values()) == pytest.approx(record.ledger.allocated_seconds, rel=1e-3)
    assert [line.split()[0] for line in report.lines if not line.startswith(("plan", "train", "run"))] == [
        "inject", "detect", "recover", "lost", "check", "result",
    ]  # fmt: skip
    home = launchers.gangs_root(repo) / record.gang.name
    assert list(procfs.with_variable("GANGLINE_HOME", str(home))) == []


@pytest.mark.slow
@pytest.mark.row("T3")
def test_a_rank_that_is_stopped_for_two_seconds_costs_no_restart(repo):
    report, record = rehearse(repo, "freeze-rank", rank=0, step=20, seconds=2.0)
    assert (report.exit_code, report.drill.result) == (0, "held"), report.lines
    assert record.gang.restarts == 0
    assert report.drill.recover_seconds >= 1.5


def test_a_step_or_a_run_that_is_not_there_is_refused_before_anything_starts(repo):
    with pytest.raises(UsageError, match="between 1 and 59"):
        rehearse(repo, "kill-rank", step=60)
    with pytest.raises(UsageError, match="no run"):
        rehearse(repo, "kill-rank", run="tiny-00000000-aaaaaa")
    with pytest.raises(ConfigError, match="refused"):
        rehearse(repo, "kill-store")
    assert not (repo / ".gangline" / "gangs").exists()
