"""A fork's commit: nothing of it runs before somebody approved it, and nothing it makes is taken for our own."""

import pytest
from tests.line import repositories

from gangline.errors import CapacityError, UsageError
from gangline.line.gangs.launchers import CHECKPOINT_KEY, open_launcher, secret_reader
from gangline.line.request.run_request import CommitOrigin
from gangline.line.request.trust import approve, rights_of
from gangline.spec.run_flags import stage
from gangline.storage.objects.protocol import list_all

FORK = CommitOrigin(branch="their-idea", pull_request=7, trust="fork")


def stop_at_the_gate(workspace, **asked):
    with pytest.raises(CapacityError, match="gangline approve cheap-"):
        workspace.run(origin=FORK, **asked)
    return workspace.records()[0]


@pytest.mark.row("P5")
def test_a_forks_run_waits_where_its_code_would_run(workspace):
    record = stop_at_the_gate(workspace)
    assert (record.commit.trust, record.commit.pull_request, record.commit.branch) == ("fork", 7, "their-idea")
    assert record.run.state == "open"
    assert stage(record, "plan").state == "done"
    assert record.gang is None
    assert not list((workspace.repo / ".gangline").glob("gangs/*"))


@pytest.mark.row("P5")
def test_a_task_is_not_even_imported_to_measure_it(workspace, monkeypatch):
    (workspace.repo / "model.py").write_text("open('ran', 'w').close()\nclass Net: ...\n")
    (workspace.repo / "line.toml").write_text(
        repositories.LINE.replace('command = ["python", "answer.py"]', 'task = "model:Net"')
        + '[data]\ntext = ["repo:*.py"]\n'
    )
    repositories.git(workspace.repo, "add", "--all")
    repositories.git(workspace.repo, "commit", "-qm", "a task")
    with pytest.raises(CapacityError, match="measuring its model would run its code"):
        workspace.run(origin=FORK)
    assert stage(workspace.records()[0], "build").state == "done"


@pytest.mark.row("P5")
def test_approved_it_goes_to_its_end_and_is_never_published(workspace):
    waiting = stop_at_the_gate(workspace)
    approved = approve(workspace.store, waiting, who="maintainer", sealer=workspace.sealer)
    assert approved.run.approved.startswith("maintainer, 20")
    assert (
        approve(workspace.store, waiting, who="another", sealer=workspace.sealer).run.approved == approved.run.approved
    )
    record = workspace.run(origin=FORK)
    assert (record.run.id, record.run.verdict) == (waiting.run.id, "passed")
    assert stage(record, "publish").state == "skipped"
    assert "never published" in stage(record, "publish").message
    assert not list(list_all(workspace.store, "models/"))


@pytest.mark.row("P5")
def test_the_same_commit_on_our_own_branch_is_another_run_and_takes_nothing(workspace):
    waiting = stop_at_the_gate(workspace)
    approve(workspace.store, waiting, who="maintainer", sealer=workspace.sealer)
    forked = workspace.run(origin=FORK)
    own = workspace.run()
    assert own.run.id != forked.run.id
    assert stage(own, "train").state == "done"
    assert own.commit.base is None


@pytest.mark.row("P5")
def test_a_forks_gang_cannot_sign_checkpoints_of_the_project(workspace):
    forked, own = stop_at_the_gate(workspace), workspace.run()
    keys = {
        record.commit.trust: secret_reader(workspace.store, workspace.site, workspace.environ, rights_of(record))(
            CHECKPOINT_KEY
        )
        for record in (forked, own)
    }
    assert keys["fork"] != keys["own"]
    assert rights_of(forked).reads == ("blobs/",)


@pytest.mark.row("P5")
def test_a_launcher_of_no_run_hands_out_no_secret(workspace):
    assert open_launcher(workspace.repo, **workspace.where, store=workspace.store)
    with pytest.raises(UsageError, match="of one run"):
        secret_reader(workspace.store, workspace.site, workspace.environ, None)(CHECKPOINT_KEY)


def test_only_open_runs_of_forks_are_approved(workspace):
    waiting = stop_at_the_gate(workspace)
    approve(workspace.store, waiting, who="maintainer", sealer=workspace.sealer)
    ended = workspace.run(origin=FORK)
    with pytest.raises(UsageError, match="has ended"):
        approve(workspace.store, ended, who="maintainer", sealer=workspace.sealer)
    with pytest.raises(UsageError, match="nothing to approve"):
        approve(workspace.store, workspace.run(), who="maintainer", sealer=workspace.sealer)


@pytest.mark.row("P5")
def test_a_fork_takes_what_our_own_run_of_the_same_inputs_has_done_and_runs_nothing(workspace):
    own = workspace.run()
    forked = workspace.run(origin=FORK)
    assert stage(forked, "train").taken_from == own.run.id
    assert forked.run.approved is None
