"""A driver that calls stage by stage asks for a run by its question: it is found however it ended, or not started."""

import pytest
from tests.line import repositories

from gangline.errors import CancelledError, TrainingError
from gangline.line.request.run_request import CommitOrigin
from gangline.line.run.cancel import cancel_run
from gangline.line.stages.run_line import resolve_run

FAILS = "import sys\nsys.exit(7)\n"


def resolve(workspace, *, branch=None, trust="own", **asked):
    repositories.settle_inventory(workspace.repo)
    origin = CommitOrigin(branch=branch, trust=trust)
    return resolve_run(workspace.repo, **workspace.where, commit="HEAD", origin=origin, **asked)


def line_of(workspace, table, files=None):
    """Commit a line with more tables in it."""
    return repositories.commit(workspace.repo, {"line.toml": repositories.LINE + table, **(files or {})})


def test_a_run_that_failed_is_found_and_its_stages_answer_what_they_ended_with(workspace):
    repositories.commit(workspace.repo, {"answer.py": FAILS})
    with pytest.raises(TrainingError):
        workspace.run(commit="HEAD")
    found = resolve(workspace)
    assert (found.run.state, found.run.verdict) == ("ended", "failed")
    workspace.stage("build", found.run.id)
    for name in ("train", "evaluate", "publish"):
        with pytest.raises(TrainingError, match="7"):
            workspace.stage(name, found.run.id)
    assert len(workspace.records()) == 1


@pytest.mark.row("C6")
def test_stages_of_a_cancelled_run_say_so(workspace):
    run = resolve(workspace).run.id
    workspace.stage("build", run)
    cancel_run(workspace.repo, run, **workspace.where, reason="enough", save=False)
    found = resolve(workspace)
    assert (found.run.id, found.run.verdict) == (run, "cancelled")
    workspace.stage("build", run)
    for name in ("plan", "train"):
        with pytest.raises(CancelledError, match="enough"):
            workspace.stage(name, run)


def test_again_is_the_next_attempt_once_the_newest_has_ended(workspace):
    first = workspace.run(commit="HEAD")
    second = resolve(workspace, again=True)
    assert (second.run.attempt, second.run.state) == (2, "open")
    assert resolve(workspace, again=True).run.id == second.run.id
    assert resolve(workspace).run.id == second.run.id != first.run.id


@pytest.mark.parametrize(
    ("table", "branch", "said"),
    [
        ('[trigger]\nbranches = ["main", "release/*"]\n', "release/1", None),
        ('[trigger]\nbranches = ["main", "release/*"]\n', "topic", "trigger.branches leaves topic out"),
        ("", "topic", None),
    ],
)
def test_a_push_starts_a_run_where_the_line_says_so(workspace, table, branch, said):
    line_of(workspace, table)
    found = resolve(workspace, branch=branch, pushed=True)
    assert found == said if said else found.commit.branch == branch
    assert resolve(workspace, branch=branch).commit.branch == branch  # whoever asks by name is not asked back


def test_a_push_that_changes_no_path_of_the_trigger_starts_nothing(workspace):
    line_of(workspace, '[trigger]\npaths = ["*.py", "line.toml"]\n')
    first = resolve(workspace, branch="topic", pushed=True)
    assert resolve(workspace, branch="topic", pushed=True).run.id == first.run.id
    repositories.commit(workspace.repo, {"notes.txt": "new"})
    assert "trigger.paths" in resolve(workspace, branch="topic", pushed=True)
    repositories.commit(workspace.repo, {"more.txt": "new", "answer.py": repositories.PROGRAM + "\n"})
    assert resolve(workspace, branch="topic", pushed=True).run.id != first.run.id
    repositories.commit(workspace.repo, {"notes.txt": "newer"})
    assert resolve(workspace, branch="other", pushed=True).commit.branch == "other"  # nothing ran of it yet


@pytest.mark.row("P5")
def test_a_fork_is_judged_by_the_line_of_the_default_branch(workspace):
    line_of(workspace, '[trigger]\nforks = "off"\n')
    repositories.git(workspace.repo, "checkout", "--quiet", "-b", "strange")
    line_of(workspace, '[trigger]\nforks = "plan"\n')
    assert "trigger.forks" in resolve(workspace, branch="main", trust="fork", pushed=True)
    assert workspace.records() == []


def test_of_two_pushes_the_later_commit_stays_whichever_is_resolved_first(workspace):
    repositories.git(workspace.repo, "checkout", "--quiet", "-b", "topic")
    earlier = repositories.commit(workspace.repo, {"notes.txt": "1"})
    repositories.commit(workspace.repo, {"notes.txt": "2"})
    later = resolve(workspace, branch="topic")
    resolve_run(workspace.repo, **workspace.where, commit=earlier, origin=CommitOrigin(branch="topic"))
    assert workspace.record(later.run.id).run.state == "open"
    repositories.commit(workspace.repo, {"notes.txt": "3"})
    newest = resolve(workspace, branch="topic")
    assert {each.run.id for each in workspace.records() if each.run.state == "open"} == {newest.run.id}
