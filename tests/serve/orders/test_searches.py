"""A pull request with the label `search`: one search of its head, five rows and the change of its line in a comment."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.line.repositories import LINE, git
from tests.report import searches
from tests.search.stored import LR, store_search
from tests.serve import deliveries

from gangline.forge.factory import open_forges
from gangline.forge.protocol import RefHead
from gangline.serve.orders.searches import SEARCH_PROGRAM, comment_marker, search_ended, search_refusal
from gangline.serve.orders.sources import CommitSource
from gangline.serve.orders.workers import OrderService

SEARCHER = (sys.executable, str(Path(__file__).with_name("searcher.py")))
SPACE = f'{LINE}[optimizer.elementwise]\nlr = 0.5  # by hand\n[search.space]\n"{LR}" = {{ low = 1e-4, high = 1.0 }}\n'
PULL = "refs/pull/7/head"


@pytest.fixture
def labelled(forged, monkeypatch):
    """A pull request of our own whose line has a search; its labels are in `forge.labels`."""
    forged.push(branch="topic", files={"line.toml": SPACE})
    git(forged.repo, "update-ref", PULL, "topic")
    forged.forge.labels = ("search",)
    plain = forged.forge._head
    monkeypatch.setattr(forged.forge, "_head", lambda ref, name: replace(plain(ref, name), labels=forged.forge.labels))
    return forged


def settled(yard, state):
    order = yard.order(ref=PULL, pull_request=7, kind="search", cause="pull_request")
    service = OrderService(yard.context, search_program=SEARCHER)
    service.workers.start()
    try:
        return yard.wait(order, state)
    finally:
        service.close()


def test_a_labelled_pull_request_is_searched_and_no_run_is_built_of_it(labelled):
    done = settled(labelled, "done")
    assert done.commit == git(labelled.repo, "rev-parse", PULL)
    assert done.note.startswith("BETTER trial ")
    assert labelled.records() == []


def test_without_the_label_or_from_a_fork_or_without_a_space_nothing_is_searched(labelled):
    labelled.forge.labels = ("bug",)
    assert "has no label search" in settled(labelled, "dropped").note
    labelled.forge.labels = ("search",)
    labelled.forge.forks.add(7)
    assert "a fork are not searched" in settled(labelled, "dropped").note
    labelled.forge.forks.clear()
    labelled.push(branch="topic", files={"line.toml": LINE})
    git(labelled.repo, "update-ref", PULL, "topic")
    assert "no [search.space]" in settled(labelled, "dropped").note
    assert list(labelled.context.store.list("searches/")) == []


class Comments:
    """A forge that keeps comments."""

    def __init__(self):
        self.written = []

    def upsert_comment(self, repository, pull_request, marker, text):
        assert marker in text
        self.written.append((repository, pull_request, text))
        return "url"


def test_the_comment_has_five_rows_and_the_change_of_the_line(labelled):
    commit = git(labelled.repo, "rev-parse", PULL)
    request = searches.request(project="cheap", commit=commit, space={LR: searches.request().space[LR]})
    best = store_search(labelled.context.store, request, trials=12)
    forge, order = Comments(), labelled.order(ref=PULL, pull_request=7, kind="search", commit=commit)
    source = CommitSource("cheap", "", "clone", "team/cheap", forge, token="secret:env:TOKEN")
    git(labelled.repo, "switch", "--quiet", "topic")
    done = search_ended(labelled.context, source, order, labelled.repo, code=0, last_message="")
    [(repository, number, text)] = forge.written
    assert (repository, number, done.state) == ("team/cheap", 7, "done")
    assert text.startswith(comment_marker("cheap"))
    assert sum(line.startswith("| ") for line in text.splitlines()) == 1 + 5
    assert "-lr = 0.5  # by hand" in text
    assert f"+lr = {best.settings[LR]}  # by hand" in text
    later = search_ended(labelled.context, source, order, labelled.repo, code=40, last_message="the store is away")
    assert (later.state, later.note) == ("parked", "the store is away")


@pytest.mark.parametrize(("code", "comments"), [(2, 1), (20, 0), (40, 0), (-9, 0), (0, 0), (60, 0)])
def test_a_search_that_does_not_begin_says_why_once_it_is_not_tried_again(labelled, code, comments):
    forge = Comments()
    source = CommitSource("cheap", "", "clone", "team/cheap", forge, token="secret:env:TOKEN")
    order = labelled.order(ref=PULL, pull_request=7, kind="search", commit="1" * 40)
    search_ended(labelled.context, source, order, labelled.repo, code=code, last_message="wanted a metric <b>")
    assert len(forge.written) == comments
    for _, _, text in forge.written:
        assert text.startswith(comment_marker("cheap"))
        assert "Commit 111111111111 is not searched: wanted a metric" in text
        assert "<b>" not in text


def test_what_searches_is_the_command():
    assert SEARCH_PROGRAM[3:5] == ("gangline", "search")
    assert search_refusal(RefHead(commit="1" * 40, labels=("search",))) == ""


def pull_request(action, *, labels=(), label=None):
    payload = deliveries.pull_request(action=action)
    payload["pull_request"]["labels"] = [{"name": each} for each in labels]
    return payload | ({} if label is None else {"label": {"name": label}})


MERGE = {
    "object_kind": "merge_request", "project": {"path_with_namespace": deliveries.REPOSITORY},
    "object_attributes": {
        "action": "update", "iid": 7, "source_branch": "topic", "source_project_id": 1, "target_project_id": 1
    },
}  # fmt: skip


def labels_of_merge(before, after):
    titles = [[{"title": each} for each in names] for names in (before, after)]
    return MERGE | {"changes": {"labels": {"previous": titles[0], "current": titles[1]}}}


@pytest.mark.parametrize(
    ("kind", "payload", "asks"),
    [
        ("hub", pull_request("labeled", label="search", labels=["search"]), True),
        ("hub", pull_request("labeled", label="bug", labels=["bug", "search"]), None),
        ("hub", pull_request("unlabeled", label="search"), None),
        ("hub", pull_request("synchronize", labels=["search"]), False),
        ("tea", pull_request("label_updated", labels=["bug", "search"]), True),
        ("tea", pull_request("label_updated", labels=["bug"]), None),
        ("lab", labels_of_merge(["bug"], ["bug", "search"]), True),
        ("lab", labels_of_merge(["search"], ["search", "bug"]), False),
        ("lab", MERGE, False),
    ],
)
def test_a_delivery_asks_for_a_search_when_the_label_is_given(kind, payload, asks):
    forge = open_forges(deliveries.SITE, deliveries.ENVIRON)[kind]
    names = {"hub": "github", "tea": "gitea", "lab": "gitlab"}
    event = forge.verify(*deliveries.signed(json.loads(json.dumps(payload)), kind=names[kind], event="pull_request"))
    assert (event.event, event.asks_search) == (("other", False) if asks is None else ("pull_request", asks))
