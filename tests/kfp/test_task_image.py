"""An image of tasks that lacks something: named, and no verdict on the commit."""

import pytest
from tests.line import repositories

from gangline.errors import NotInstalledError
from gangline.kfp.run_stage import run_stage
from gangline.kfp.task_config import TaskConfig


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
    assert "wanted git on the PATH, found none; install git, in the image of a task" in capsys.readouterr().err
    assert workspace.record(run).run.state == "open"
    assert workspace.run().run.verdict == "passed"
