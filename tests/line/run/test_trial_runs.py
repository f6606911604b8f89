"""A run that a search drives measures settings: it speaks for neither its branch nor its commit."""

from dataclasses import replace

from tests.contracts.forge.stub import Stub
from tests.line import repositories

from gangline.spec.config.site import ForgeTable
from gangline.spec.run_flags import SEARCH, search_of

ID = "s-9f31c2a0-m4k7"


def try_out(workspace, **asked):
    """Drive a run as a search does."""
    plain, workspace.environ = workspace.environ, {**workspace.environ, SEARCH: ID}
    record = workspace.run(until="plan", overrides=("optimizer.elementwise.lr=0.01",), **asked)
    workspace.environ = plain
    return record


def test_it_neither_stops_a_run_of_its_branch_nor_is_stopped_by_one(workspace):
    repositories.git(workspace.repo, "checkout", "-q", "-b", "work")
    whole, trial = workspace.run(until="plan"), try_out(workspace)
    assert (search_of(whole), search_of(trial)) == ("", ID)
    sha = repositories.commit(workspace.repo, {"x": "1"})
    try_out(workspace, commit=sha)
    assert {each.run.cancel_requested for each in workspace.records()} == {None}
    newer = workspace.run(until="plan", commit=sha)
    stopped = {each.run.id: each.run.cancel_requested for each in workspace.records() if each.run.cancel_requested}
    assert stopped == {whole.run.id: f"superseded by {newer.run.id}"}


def test_a_forge_gets_statuses_of_the_commit_and_none_of_its_trials(workspace):
    stub = Stub("github")
    try:
        table = ForgeTable(kind="github", url=stub.url, token="secret:env:T", projects={"team/tiny": "cheap"})
        workspace.site = replace(workspace.site, forge={"ours": table})
        workspace.environ = {**workspace.environ, "T": "t0ken"}
        try_out(workspace)
        assert stub.world.statuses == []
        workspace.run(until="plan")
        assert {status["context"] for _, status in stub.world.statuses} >= {"gangline/build"}
    finally:
        stub.close()


def test_a_run_that_was_there_before_a_search_found_it_stays_whose_it_was(workspace):
    workspace.run(until="build", overrides=("optimizer.elementwise.lr=0.01",))
    assert search_of(try_out(workspace)) == ""
