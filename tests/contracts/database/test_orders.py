"""What every state database promises of orders: claimed once, in turn, taken up again, dropped, forgotten."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.contracts.database.rows import claim, order, queued, take_in

from gangline.serve.database.open import open_database

DAY = 86_400.0


def test_a_newer_event_of_a_ref_makes_the_queued_one_needless(database):
    take_in(database)
    assert take_in(database, delivery="d2", body="b2", now=1001.0)
    (dropped,) = database.orders.list(states=["dropped"], projects=None, limit=10)
    assert "newer event" in dropped.note
    assert [each.id for each in queued(database)] == [dropped.id + 1]


def test_an_order_that_yields_displaces_no_one_who_waits(database):
    """A sweep that saw a head before somebody ordered it must not take that order away."""
    asked = database.orders.add(order(), now=1.0)
    mark = {"forge": "sweep", "delivery": "d", "body_digest": "b", "now": 2.0, "unless_queued": True}
    assert database.deliveries.take_in(order=order(), **mark)
    assert [each.id for each in queued(database)] == [asked.id]
    other = {**mark, "delivery": "d2", "body_digest": "b2"}
    assert database.deliveries.take_in(order=order(ref="refs/heads/other"), **other)
    assert len(queued(database)) == 2


def test_what_was_asked_for_by_name_is_never_made_needless(database):
    named = database.orders.add(order(commit="a" * 40), now=1.0)
    with_key = database.orders.add(order(overrides=("train.seed=2",)), now=1.0)
    take_in(database)
    assert {each.id for each in queued(database)} >= {named.id, with_key.id}
    assert len(queued(database)) == 3


def test_an_order_is_claimed_once_however_many_ask(database):
    for number in range(20):
        database.orders.add(order(f"refs/heads/{number}"), now=1.0)
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda n: claim(database, holder=f"h{n}"), range(30)))
    ids = [each.id for each in claimed if each]
    assert len(ids) == len(set(ids)) == 20
    assert all(each is None or each.state == "driving" for each in claimed)


def test_projects_take_turns_and_each_keeps_its_order(database):
    for number in range(6):
        database.orders.add(order(f"refs/heads/{number}", project="big"), now=float(number))
    for number in range(2):
        database.orders.add(order(f"refs/heads/{number}", project="small"), now=100.0)
    taken = [claim(database) for _ in range(8)]
    assert Counter(each.project for each in taken[:4]) == {"big": 2, "small": 2}
    assert [each.ref[-1] for each in taken if each.project == "big"] == list("012345")


def test_an_order_is_left_alone_until_its_time(database):
    database.orders.add(order(not_before=5000.0), now=1.0)
    assert claim(database, now=4999.0) is None
    assert claim(database, now=5000.0) is not None


def test_only_the_holder_renews_and_settles(database):
    database.orders.add(order(), now=1.0)
    mine = claim(database)
    assert database.orders.renew(mine.id, holder="me", now=2010.0, lease_seconds=60.0)
    assert not database.orders.renew(mine.id, holder="you", now=2010.0, lease_seconds=60.0)
    assert not database.orders.settle(replace(mine, state="done"), holder="you")
    assert database.orders.settle(replace(mine, state="done", run="alpha-1", note="passed"), holder="me")
    assert not database.orders.settle(replace(mine, state="queued"), holder="me")
    found = database.orders.get(mine.id)
    assert (found.state, found.run, found.note) == ("done", "alpha-1", "passed")


def test_a_claimed_order_learns_its_run_and_stays_claimed(database):
    database.orders.add(order(), now=1.0)
    mine = claim(database)
    assert database.orders.settle(replace(mine, run="alpha-1", commit="c" * 40), holder="me")
    assert database.orders.renew(mine.id, holder="me", now=2001.0, lease_seconds=60.0)
    assert database.orders.get(mine.id).run == "alpha-1"


@pytest.mark.row("C2")
def test_an_order_whose_driver_is_gone_is_run_again_with_its_run(database):
    database.orders.add(order(), now=1.0)
    first = claim(database, now=2000.0)
    database.orders.settle(replace(first, run="alpha-1"), holder="me")
    assert claim(database, now=2059.0, holder="you") is None
    again = claim(database, now=2060.0, holder="you")
    assert (again.id, again.run) == (first.id, "alpha-1")
    assert not database.orders.settle(replace(first, state="done"), holder="me")


def test_a_parked_order_waits_for_its_hour_or_is_woken(database):
    database.orders.add(order(), now=1.0)
    mine = claim(database)
    database.orders.settle(
        replace(mine, state="parked", run="alpha-1", not_before=9000.0, tries=1, note="no room"), holder="me"
    )
    assert claim(database, now=8000.0) is None
    assert not database.orders.unpark("alpha-2", now=8000.0)
    assert database.orders.unpark("alpha-1", now=8000.0)
    again = claim(database, now=8000.0)
    assert (again.id, again.tries, again.run) == (mine.id, 1, "alpha-1")
    assert not database.orders.unpark("alpha-1", now=8000.0)


def test_dropping_a_ref_spares_what_is_driven_and_other_refs(database):
    database.orders.add(order(commit="a" * 40), now=1.0)
    driven = claim(database)
    database.orders.settle(replace(driven, run="alpha-1"), holder="me")
    waiting = database.orders.add(order(), now=2.0)
    other = database.orders.add(order("refs/heads/other"), now=2.0)
    dropped = database.orders.drop(project="alpha", ref="refs/heads/main", note="the branch is gone")
    assert [(each.id, each.state, each.note) for each in dropped] == [(waiting.id, "dropped", "the branch is gone")]
    assert database.orders.get(driven.id).state == "driving"
    assert [each.id for each in queued(database)] == [other.id]


def test_dropping_a_ref_takes_what_is_driven_without_a_run_from_its_driver(database):
    database.orders.add(order(commit="a" * 40), now=1.0)
    prepared = claim(database)
    asker = database.orders.add(order(commit="b" * 40), now=2.0)
    dropped = database.orders.drop(project="alpha", ref="refs/heads/main", note="it is gone", except_order=asker.id)
    assert [each.id for each in dropped] == [prepared.id]
    assert not database.orders.settle(replace(prepared, run="alpha-1"), holder="me")
    assert not database.orders.renew(prepared.id, holder="me", now=3.0, lease_seconds=60.0)
    assert database.orders.get(prepared.id).note == "it is gone"


def test_an_order_is_withdrawn_until_a_run_of_it_is_driven(database):
    first = database.orders.add(order(), now=1.0)
    assert database.orders.withdraw(first.id, note="why").state == "dropped"
    assert claim(database) is None
    database.orders.add(order(), now=2.0)
    prepared = claim(database)
    assert database.orders.withdraw(prepared.id, note="why").state == "dropped"
    assert not database.orders.settle(replace(prepared, state="done"), holder="me")
    database.orders.add(order(), now=3.0)
    driven = claim(database)
    assert database.orders.settle(replace(driven, run="alpha-1"), holder="me")
    assert database.orders.withdraw(driven.id, note="why").state == "driving"
    assert database.orders.settle(replace(driven, run="alpha-1", state="done", note="passed"), holder="me")
    assert database.orders.withdraw(driven.id, note="why").note == "passed"
    assert database.orders.withdraw(99, note="why") is None


def test_orders_are_listed_by_state_and_project_and_counted(database):
    for project in ("alpha", "beta"):
        database.orders.add(order(project=project), now=1.0)
    claim(database)
    assert database.orders.counts() == {"driving": 1, "queued": 1}
    assert len(database.orders.list(states=["queued", "driving"], projects=None, limit=10)) == 2
    assert len(database.orders.list(states=["queued", "driving"], projects=None, limit=1)) == 1
    assert [each.project for each in database.orders.list(states=["queued"], projects=["beta"], limit=9)] == ["beta"]
    assert database.orders.list(states=["queued"], projects=[], limit=9) == []
    assert database.orders.list(states=[], projects=None, limit=9) == []
    assert database.orders.get(999) is None


def test_two_services_over_one_database_share_its_orders(url, database):
    other = open_database(url)
    for number in range(10):
        database.orders.add(order(f"refs/heads/{number}"), now=1.0)
    taken = []
    threads = [
        threading.Thread(target=lambda mine=mine: taken.extend(claim(mine) for _ in range(5)))
        for mine in (database, other)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    other.close()
    assert len({each.id for each in taken}) == 10


def test_a_ref_that_was_refused_is_reported_until_it_is_ordered_again(database):
    for ref in ("refs/heads/main", "refs/heads/other"):
        database.orders.add(order(ref), now=1.0)
        database.orders.settle(replace(claim(database), state="done", note="line.toml: no"), holder="me")
    reported = database.orders.refused(projects=None, limit=9)
    assert [(each.ref, each.note) for each in reported] == [
        ("refs/heads/other", "line.toml: no"), ("refs/heads/main", "line.toml: no"),
    ]  # fmt: skip
    assert database.orders.refused(projects=["beta"], limit=9) == []
    assert database.orders.refused(projects=[], limit=9) == []
    database.orders.add(order("refs/heads/main"), now=2.0)
    assert [each.ref for each in database.orders.refused(projects=["alpha"], limit=9)] == ["refs/heads/other"]
    database.orders.settle(replace(claim(database, now=3.0), state="done", run="r1"), holder="me")
    assert [each.ref for each in database.orders.refused(projects=None, limit=9)] == ["refs/heads/other"]


def test_a_newer_order_of_a_ref_that_is_driven_can_be_claimed_before_its_turn(database):
    def relief():
        return database.orders.claim_newer(holder="me", now=9.0, lease_seconds=60.0)

    database.orders.add(order("refs/heads/long"), now=1.0)
    driven = claim(database, now=2.0)
    database.orders.add(order("refs/heads/other"), now=3.0)
    database.orders.add(order("refs/heads/long", again=True), now=4.0)
    assert relief() is None
    newer = database.orders.add(order("refs/heads/long"), now=5.0)
    claimed = relief()
    assert (claimed.id, claimed.state) == (newer.id, "driving")
    assert relief() is None
    assert database.orders.get(driven.id).state == "driving"
    assert database.orders.settle(replace(claimed, state="dropped"), holder="me")


def settled(database, ref, state, *, at):
    """An order that waited last at `at`, in its last state."""
    added = database.orders.add(order(ref), now=at)
    taken = claim(database, now=at)
    assert taken.id == added.id
    assert database.orders.settle(replace(taken, state=state), holder="me")
    return added.id


def test_orders_that_are_over_and_old_are_forgotten_in_small_batches(database):
    old = [settled(database, f"refs/heads/{number}", "done", at=10.0 + number) for number in range(5)]
    stuck = settled(database, "refs/heads/stuck", "quarantined", at=20.0)
    young = settled(database, "refs/heads/young", "done", at=100.0)
    dropped = database.orders.add(order("refs/heads/dropped"), now=30.0).id
    database.orders.drop(project="alpha", ref="refs/heads/dropped", note="gone")
    waiting = database.orders.add(order("refs/heads/waiting"), now=5.0).id
    driven = database.orders.add(order("refs/heads/driven", project="beta"), now=5.0).id
    assert database.orders.claim(holder="me", now=50.0, lease_seconds=60.0).id in {waiting, driven}
    assert database.orders.forget(before=100.0, limit=2) == 3
    assert [database.orders.get(each) is None for each in old] == [True, True, False, False, False]
    assert database.orders.get(dropped) is None
    assert [database.orders.forget(before=100.0, limit=2) for _ in range(3)] == [2, 1, 0]
    assert all(database.orders.get(each) for each in (stuck, young, waiting, driven))
    assert sum(database.orders.counts().values()) == 4
    assert [each.id for each in database.orders.list(states=["done"], projects=["alpha"], limit=9)] == [young]
    assert database.check() is None
    again = database.orders.add(order("refs/heads/again"), now=200.0)
    assert again.id > max(young, dropped, waiting, driven)


def test_an_order_that_waited_long_ago_but_again_later_is_young(database):
    added = database.orders.add(order("refs/heads/long"), now=1.0)
    taken = claim(database, now=1.0)
    assert database.orders.settle(replace(taken, state="parked", not_before=500.0), holder="me")
    taken = claim(database, now=500.0)
    assert database.orders.settle(replace(taken, state="done"), holder="me")
    assert database.orders.forget(before=400.0, limit=10) == 0
    assert database.orders.forget(before=501.0, limit=10) == 1
    assert database.orders.get(added.id) is None
