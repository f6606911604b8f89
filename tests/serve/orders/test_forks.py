"""A fork's order is a fork's, however often it is taken up again: after its approval, a restart, a wait for room."""

import time
from dataclasses import replace

import pytest
from tests.line.repositories import git

from gangline.line.request import trust

pytestmark = [pytest.mark.row("P5"), pytest.mark.long]


@pytest.fixture
def fork(forged):
    """A pull request of a fork whose run waits for its approval; its order then."""
    sha = forged.push(branch="stranger")
    git(forged.repo, "update-ref", "refs/pull/7/head", sha)
    forged.forge.forks.add(7)
    order = forged.order(ref="refs/pull/7/head", branch="pull-7", pull_request=7, cause="pull_request")
    with forged.working():
        return forged.wait(order, "parked")


def test_what_is_kept_of_a_fork_s_order_says_so(fork):
    assert (fork.trust, fork.branch) == ("fork", "pull-7")


def test_approved_it_continues_as_the_run_that_was_approved_and_no_other_is_born(forged, fork):
    (record,) = forged.records()
    trust.approve(forged.context.store, record, who="maintainer", sealer=forged.sealer)
    assert forged.context.database.orders.unpark(fork.run, now=time.time())
    with forged.working():
        assert forged.wait(fork).run == record.run.id
    (ended,) = forged.records()
    assert (ended.run.id, ended.commit.trust, ended.run.verdict) == (record.run.id, "fork", "passed")


def test_run_again_without_an_approval_it_waits_again(forged, fork):
    """As after a restart of the service, or where there was no room."""
    assert forged.context.database.orders.unpark(fork.run, now=time.time())
    starts = len(forged.starts())
    with forged.working():
        forged.until(lambda: len(forged.starts()) > starts)
        assert forged.wait(fork, "parked").run == fork.run
    (record,) = forged.records()
    assert (record.commit.trust, record.run.state) == ("fork", "open")


def test_run_again_it_continues_as_its_record_says(forged, fork, monkeypatch):
    """Whatever the database says of the order by now."""
    claim = type(forged.context.database.orders).claim

    def forgetful(orders, **asked):
        order = claim(orders, **asked)
        return None if order is None else replace(order, trust="own", branch="main")

    monkeypatch.setattr(type(forged.context.database.orders), "claim", forgetful)
    assert forged.context.database.orders.unpark(fork.run, now=time.time())
    starts = len(forged.starts())
    with forged.working():
        forged.until(lambda: len(forged.starts()) > starts)
        assert forged.wait(fork, "parked", "done").run == fork.run
    assert [each.commit.trust for each in forged.records()] == ["fork"]
