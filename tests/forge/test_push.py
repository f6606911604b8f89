"""A push to a real Gitea, and what comes back through a real service: run, statuses, one comment."""

import time

import pytest
from tests.forge.conftest import RUN_PAGES
from tests.forge.service import served
from tests.line import repositories
from tests.line.repositories import commit, git

from gangline.line.record.runs import list_runs
from gangline.line.request.trust import approve

pytestmark = pytest.mark.tools


LOOKS_FOR_SECRETS = f"""\
import os
assert not {{"FORGE_TOKEN", "HOOK_SECRET"}} & set(os.environ), "secrets of the service"
{repositories.PROGRAM}"""


def until(what, found, seconds=90):
    """What `found` answers once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds} s in vain until {what}")


@pytest.fixture
def service(place, tmp_path):
    with served(tmp_path / "service", place, RUN_PAGES) as running:
        place.hook_to(running.hook_url)
        yield running


@pytest.fixture
def repo(tmp_path):
    return repositories.make_repository(tmp_path / "repo")


def run_of(service, sha):
    return next((each for each in list_runs(service.store, project="cheap", commit=sha)), None)


def ended(service, sha):
    def look():
        record = run_of(service, sha)
        report = record and record.stages.get("report")
        return record if report and report.state in ("done", "skipped") else None

    return until(f"the run of {sha[:8]} has ended: {service.log[-3000:]}", look)


def test_a_push_becomes_a_run_whose_statuses_and_comment_stand_on_the_forge(service, place, repo):
    place.push(repo)
    main = ended(service, git(repo, "rev-parse", "HEAD"))
    assert main.run.verdict == "passed"
    assert {state for state, _, _ in place.statuses(main.commit.sha).values()} == {"success"}

    git(repo, "checkout", "--quiet", "-b", "wider")
    sha = commit(repo, {"notes.txt": "1\n"})
    place.push(repo, "wider")
    pull = place.open_pull("wider")
    (comment,) = until("there is a comment", lambda: place.comments(pull))
    until("it is of this run", lambda: ended(service, sha).run.id in place.comments(pull)[0]["body"])

    newer = commit(repo, {"notes.txt": "2\n"})
    place.push(repo, "wider")
    run = ended(service, newer).run.id
    until("the comment is of the newer run", lambda: run in place.comments(pull)[0]["body"])
    (edited,) = place.comments(pull)
    assert edited["id"] == comment["id"]


def test_a_pull_request_of_a_fork_waits_for_a_maintainer_and_says_so(service, place, repo):
    place.push(repo)
    ended(service, git(repo, "rev-parse", "HEAD"))
    stranger = f"s-{place.owner}"
    place.gitea.add_user(stranger)
    place.gitea.call("POST", f"{place.path}/forks", {}, user=stranger)
    git(repo, "checkout", "--quiet", "-b", "evil")
    sha = commit(repo, {"answer.py": LOOKS_FOR_SECRETS}, "<script>alert(1)</script> @everyone $(id)")
    place.push(repo, "evil", user=stranger, to=f"{stranger}/cheap")
    pull = place.open_pull(f"{stranger}:evil", user=stranger)
    (comment,) = until("there is a comment", lambda: place.comments(pull))
    record = run_of(service, sha)
    assert (record.commit.trust, record.run.approved, record.run.state) == ("fork", None, "open")
    assert f"gangline approve {record.run.id}" in comment["body"]
    assert "@everyone" not in comment["body"]
    assert "<script>" not in comment["body"]
    reported = place.statuses(sha)
    assert reported["gangline/train"][0] == "pending"
    assert not (record.stages.get("train") and record.stages["train"].state == "done")

    approve(service.store, record, who="ann", sealer=service.sealer)
    approved = ended(service, sha)
    assert (approved.run.verdict, approved.stages["publish"].state) == ("passed", "skipped")
    until("the comment says how it ended", lambda: "✓ passed" in place.comments(pull)[0]["body"])


def test_a_newer_push_supersedes_what_trains_and_both_commits_say_so(service, place, repo):
    git(repo, "checkout", "--quiet", "-b", "wider")
    older = commit(repo, {"answer.py": repositories.LONG_PROGRAM})
    place.push(repo, "wider")

    def trains():
        record = run_of(service, older)
        return record and record.stages.get("train") and record.stages["train"].state == "running"

    until(f"the older commit trains: {service.log[-3000:]}", trains)
    until("its status is pending", lambda: place.statuses(older).get("gangline/train", ("",))[0] == "pending")
    newer = commit(repo, {"answer.py": repositories.PROGRAM})
    place.push(repo, "wider")
    won, lost = ended(service, newer), ended(service, older)
    assert (lost.run.verdict, won.run.verdict) == ("superseded", "passed")
    state, said, _ = until("its last word is out", lambda: reported_as(place, older, "error"))
    assert (state, won.run.id in said) == ("error", True)
    assert {each for each, _, _ in place.statuses(newer).values()} == {"success"}


def reported_as(place, sha, state):
    found = place.statuses(sha).get("gangline/train")
    return found if found and found[0] == state else None


SPACE = '[search.space]\n"optimizer.elementwise.lr" = { low = 1e-4, high = 1.0 }\n'


def test_a_pull_request_that_gets_the_label_search_is_asked_for_a_search(service, place, repo):
    """What a forge sends when a label is given is its own, so it comes from a real one; the search has no metric."""
    git(repo, "checkout", "--quiet", "-b", "searched")
    sha = commit(repo, {"line.toml": repositories.LINE + SPACE})
    place.push(repo)
    place.push(repo, "searched")
    pull = place.open_pull("searched")
    place.give_label(pull, "search")

    def said():
        return [each["body"] for each in place.comments(pull) if "is not searched" in each["body"]]

    (text,) = until("a comment says why there is no search", said)
    assert f"Commit {sha[:12]} is not searched" in text
    assert "search.metric: wanted a metric" in text
