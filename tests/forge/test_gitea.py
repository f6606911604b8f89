"""Runs of commits that stand on a real Gitea, seen through its API."""

import pytest
from tests.forge.conftest import RUN_PAGES
from tests.line import repositories
from tests.line.repositories import commit, git

from gangline.errors import GateError
from gangline.forge.factory import open_forges
from gangline.line.record.observer import SilentObserver
from gangline.line.request.run_request import CommitOrigin
from gangline.line.stages.run_line import run_line

pytestmark = pytest.mark.tools
CONTEXTS = {f"gangline/{name}" for name in ("build", "train", "gate", "publish")}


def test_a_run_leaves_four_statuses_and_a_link_to_the_commit(place, pushed):
    record = pushed.run(commit="main")
    reported = place.statuses(record.commit.sha)
    assert set(reported) == CONTEXTS
    assert {state for state, _, _ in reported.values()} == {"success"}
    assert {url for _, _, url in reported.values()} == {f"{RUN_PAGES}/runs/{record.run.id}"}
    assert record.links["forge"] == f"{place.gitea.url}/{place.repository}/commit/{record.commit.sha}"
    assert not [event for event in record.events if event.kind == "forge"]


def test_one_comment_is_edited_over_three_runs(place, pushed):
    git(pushed.repo, "checkout", "--quiet", "-b", "wider")
    seen = []
    for number in range(3):
        sha = commit(pushed.repo, {"notes.txt": f"{number}\n"})
        place.push(pushed.repo, "wider")
        pull = seen[0] if seen else place.open_pull("wider")
        seen.append(pull)
        record = pushed.run(commit=sha, origin=CommitOrigin(branch="wider", pull_request=pull))
        (comment,) = place.comments(pull)
        assert record.run.id in comment["body"]
        assert comment["user"]["login"] == place.bot
        assert record.links["comment"] == comment["html_url"]


class DuringTraining(SilentObserver):
    """Does something to the forge once the gang is about to train."""

    def __init__(self, act):
        self._act = act

    def stage_started(self, name):
        if name == "train":
            self._act()


def events_of(record):
    return [event.text for event in record.events if event.kind == "forge"]


def test_a_forge_that_stops_in_mid_run_costs_an_event_and_nothing_else(place, pushed):
    repositories.settle_inventory(pushed.repo, commit="main")
    pull = CommitOrigin(branch="main", pull_request=1)
    try:
        record = run_line(
            pushed.repo, **pushed.where, commit="main", origin=pull, observer=DuringTraining(place.gitea.stop)
        )
    finally:
        place.gitea.start()
    assert record.run.verdict == "passed"
    reported = events_of(pushed.record(record.run.id))
    assert any("the comment on the pull request failed: forge ours" in text for text in reported)
    assert any("cannot be reached" in text for text in reported)
    assert len(reported) == len(set(reported)) <= 4


def test_a_token_that_may_only_read_costs_one_event_that_says_what_to_do(place, pushed):
    reading = place.gitea.token(place.bot, "read:repository", "read:issue", "read:user")
    pushed.environ["FORGE_TOKEN"] = reading
    record = pushed.run(commit="main")
    (said,) = events_of(pushed.record(record.run.id))
    assert record.run.verdict == "passed"
    assert "refuses the token for POST" in said
    assert "give forge.ours.token the rights" in said
    assert reading not in said
    assert place.statuses(record.commit.sha) == {}


def test_a_refused_run_fails_its_gate_and_what_was_not_reached(place, pushed):
    line = repositories.LINE + '[[gate.quality]]\nmetric = "loss"\nbetter = "lower"\nlimit = 0.5\n'
    sha = commit(pushed.repo, {"line.toml": line})
    place.push(pushed.repo)
    with pytest.raises(GateError):
        pushed.run(commit="main")
    reported = place.statuses(sha)
    states = [reported[f"gangline/{name}"][0] for name in ("build", "train", "gate", "publish")]
    assert states == ["success", "success", "failure", "error"]


def test_an_older_commit_does_not_take_the_comment_of_a_newer_one(place, pushed):
    git(pushed.repo, "checkout", "--quiet", "-b", "wider")
    older = commit(pushed.repo, {"notes.txt": "1\n"})
    newer = commit(pushed.repo, {"notes.txt": "2\n"})
    place.push(pushed.repo, "wider")
    pull = CommitOrigin(branch="wider", pull_request=place.open_pull("wider"))
    reported = pushed.run(commit=newer, origin=pull)
    silent = pushed.run(commit=older, origin=pull)
    assert "comment" in reported.links
    assert "comment" not in silent.links
    (comment,) = place.comments(pull.pull_request)
    assert reported.run.id in comment["body"]


def test_a_tree_with_changes_is_shown_to_no_one(place, pushed):
    (pushed.repo / "notes.txt").write_text("not committed\n")
    with pytest.raises(GateError, match="uncommitted"):
        pushed.run()
    (record,) = pushed.records()
    assert place.statuses(record.commit.sha) == {}
    assert "forge" not in record.links


def test_a_repository_without_a_commit_has_no_heads(place):
    (forge,) = open_forges(place.site(), place.environ).values()
    assert forge.heads(place.repository) == []
