"""Tasks that fail: what an image lacks is named and judges no commit, a verdict is in the log."""

import pytest
from tests.line import repositories

from gangline.errors import GateError, NotInstalledError
from gangline.kfp.run_stage import run_stage
from gangline.kfp.task_config import TaskConfig

REFUSES = repositories.LINE + '[[gate.quality]]\nmetric = "loss"\nbetter = "lower"\nlimit = 0.5\n'


def test_a_gate_that_refuses_prints_its_verdict(workspace, monkeypatch, capsys):
    repositories.commit(workspace.repo, {"line.toml": REFUSES})
    repositories.settle_inventory(workspace.repo)
    run = workspace.run(until="evaluate").run.id
    for name, value in workspace.environ.items():
        monkeypatch.setenv(name, value)
    config = TaskConfig(site=workspace.site, repo=str(workspace.repo)).to_text()
    with pytest.raises(SystemExit) as ended:
        run_stage("gate", run=run, config=config, outputs={"verdict": None})
    assert ended.value.code == GateError.exit_code
    screen = capsys.readouterr()
    assert "✗ refused" in screen.out
    assert "wanted at most 0.5" in screen.out
    assert screen.err.startswith("error: ")


def test_without_git_a_task_says_so_and_leaves_the_run_open(workspace, tmp_path, monkeypatch, capsys):
    repositories.settle_inventory(workspace.repo)
    run = workspace.run(until="build").run.id
    for name, value in workspace.environ.items():
        monkeypatch.setenv(name, value)
    config = TaskConfig(site=workspace.site, repo=str(workspace.repo)).to_text()
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        with pytest.raises(SystemExit) as ended:
            run_stage("plan", run=run, config=config)
    assert ended.value.code == NotInstalledError.exit_code
    assert "wanted git on the PATH, found none; install git, in an image of tasks" in capsys.readouterr().err
    assert workspace.record(run).run.state == "open"
    assert workspace.run().run.verdict == "passed"
