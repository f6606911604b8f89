"""The commit of a build, and a branch that is deleted while it trains: `scm` answers as in Jenkins."""

import pytest
from tests.jenkins.controller.test_course import RUN, said
from tests.line import repositories

pytestmark = pytest.mark.tools

CLOSED = "the branch or pull request of this build is gone"
FETCH = "the commit could not be fetched"


def branch(quick, name="topic"):
    """A branch of the repository, one commit ahead."""
    repositories.git(quick.repository, "branch", name)
    return f"refs/heads/{name}"


def push(quick, name="topic"):
    """One more commit of the branch; its full name."""
    repositories.git(quick.repository, "checkout", "-q", name)
    return repositories.commit(quick.repository, {"README.md": name + repositories.git(quick.repository, "log", "-1")})


def delete(quick, name="topic"):
    repositories.git(quick.repository, "checkout", "-q", "main")
    repositories.git(quick.repository, "branch", "-D", name)


def resolved(quick):
    """Commits that the workspace had when `stage resolve` was called."""
    return [heads.strip() for heads in (quick.folder / "heads").read_text().splitlines()]


def test_a_branch_that_is_deleted_before_the_abort_is_cancelled_and_reported(quick, place):
    """`scm` is a NullSCM by then: neither the cancel nor the report needs the commit."""
    (place / "train").write_text("75\n" * 10_000)
    one = quick.build(ref=branch(quick), BRANCH_NAME="topic")
    one.until_log("sleeps 10 s")
    delete(quick)
    (one.folder / "branch-gone").touch()
    one.abort()
    assert one.result()["result"] == "ABORTED", one.tail()
    assert f"cancel {RUN} --reason=the build was aborted" in said(quick)
    assert said(quick)[-1].startswith(f"report {RUN} --format junit")
    assert (one.folder / "artifacts" / "report.html").exists()
    assert "No such property" not in one.tail()


def test_a_build_that_is_not_aborted_cancels_its_run_when_its_branch_is_gone(quick, place):
    """A webhook makes the branch a dead one, and aborts nothing until the next scan."""
    (place / "train").write_text("75\n" * 10_000)
    one = quick.build(ref=branch(quick), BRANCH_NAME="topic")
    one.until_log("sleeps 10 s")
    (one.folder / "branch-gone").touch()
    result = one.result()
    assert result["result"] == "ABORTED", one.tail()
    assert f"cancel {RUN} --reason={CLOSED}" in said(quick)
    assert result["description"].splitlines() == [CLOSED, f"open | {RUN}"]
    assert said(quick)[-1].startswith(f"report {RUN} --format junit")


def test_a_branch_that_is_gone_before_there_is_a_run_starts_none(quick):
    one = quick.build(ref=branch(quick), meanwhile=["branch-gone"], BRANCH_NAME="topic")
    result = one.result()
    assert (result["result"], result["description"]) == ("ABORTED", CLOSED)
    assert said(quick) == []


def test_a_branch_that_is_deleted_at_the_forge_first_is_waited_for(quick, place):
    """Jenkins does not know it yet, and the fetch fails: it goes on until Jenkins knows, or the run has ended."""
    (place / "train").write_text("75\n2\n2\n" + "75\n" * 10_000)
    (place / "hang").write_text("2.\n")
    one = quick.build(ref=branch(quick), BRANCH_NAME="topic")
    one.until_log("== Train")
    delete(quick)
    one.until_log("sleeps 20 s")
    (one.folder / "branch-gone").touch()
    assert one.result()["result"] == "ABORTED", one.tail()
    assert FETCH in one.read("log")
    assert f"cancel {RUN} --reason={CLOSED}" in said(quick)


def test_a_commit_that_cannot_be_fetched_does_not_hide_that_its_run_has_ended(quick, place):
    """After a forced push the commit is nowhere, and the newer one has superseded its run."""
    (place / "train").write_text("75\n70\n")
    one = quick.build(ref=branch(quick), BRANCH_NAME="topic")
    one.until_log("sleeps 5 s")
    delete(quick)
    assert one.result()["result"] == "ABORTED", one.tail()
    assert f"stage train of {RUN} ended with 70" in one.result()["description"]


def test_a_commit_that_cannot_be_fetched_at_first_is_asked_for_again(quick, place):
    away = quick.repository.rename(quick.repository.with_name("away"))
    one = quick.build(repositories.git(away, "rev-parse", "HEAD"), BRANCH_NAME="main")
    one.until_log("sleeps 10 s")
    assert said(quick) == []
    away.rename(quick.repository)
    result = one.result()
    assert (result["result"], result["description"]) == ("SUCCESS", f"open | {RUN}"), one.tail()
    assert FETCH in one.read("log")


def test_the_commit_is_the_one_that_was_pushed_however_late_its_agent_comes(quick):
    ref = branch(quick)
    first = push(quick)
    one = quick.build(ref=ref, meanwhile=["agents-away"], BRANCH_NAME="topic")
    one.until_log("waits for an agent")
    second = push(quick)
    two = quick.build(ref=ref, BRANCH_NAME="topic")
    assert two.result()["result"] == "SUCCESS", two.tail()
    (one.folder / "agents-away").unlink()
    assert one.result()["result"] == "SUCCESS", one.tail()
    assert resolved(quick) == [second, first]


def test_a_controller_that_dies_while_it_waits_for_an_agent_keeps_the_commit(quick):
    ref = branch(quick)
    first = push(quick)
    one = quick.build(ref=ref, meanwhile=["agents-away"], BRANCH_NAME="topic")
    one.until_log("waits for an agent")
    one.kill()
    push(quick)
    (one.folder / "agents-away").unlink()
    assert one.start().result()["result"] == "SUCCESS", one.tail()
    assert resolved(quick) == [first]


def test_a_forge_that_does_not_name_the_commit_is_said_to(quick):
    result = quick.build(ref=branch(quick), meanwhile=["forge-away"], BRANCH_NAME="topic").result()
    assert result["result"] == "FAILURE"
    assert result["description"] == "the forge named no commit for this build, as its log says; build it again"
    assert said(quick) == []
