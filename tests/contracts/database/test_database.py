"""What every state database promises, SQLite and PostgreSQL alike."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.contracts.database.rows import order, row

from gangline.errors import ConfigError
from gangline.serve.database.open import open_database
from gangline.serve.database.types import Principal, RunFilter

DAY = 86_400.0


def take_in(database, delivery="d1", body="b1", now=1000.0, forge="ours", **fields):
    return database.deliveries.take_in(forge=forge, delivery=delivery, body_digest=body, order=order(**fields), now=now)


def claim(database, now=2000.0, holder="me", lease_seconds=60.0):
    return database.orders.claim(holder=holder, now=now, lease_seconds=lease_seconds)


def queued(database):
    return database.orders.list(states=["queued"], projects=None, limit=100)


def test_a_delivery_and_its_order_come_together_and_once(database):
    assert take_in(database)
    assert not take_in(database)
    assert not take_in(database, delivery="another id, same body")
    assert not take_in(database, body="another body, same id")
    (only,) = queued(database)
    assert (only.project, only.ref, only.created, only.state) == ("alpha", "refs/heads/main", 1000.0, "queued")


def test_another_forge_may_use_the_same_ids(database):
    assert take_in(database, ref="refs/heads/a")
    assert take_in(database, ref="refs/heads/b", forge="theirs")
    assert len(queued(database)) == 2


def test_a_delivery_without_an_order_is_remembered_too(database):
    assert database.deliveries.take_in(forge="ours", delivery="x", body_digest="y", order=None, now=1.0)
    assert not take_in(database, delivery="x")
    assert queued(database) == []


def test_deliveries_are_forgotten_after_thirty_days_and_not_before(database):
    assert take_in(database, now=0.0)
    assert not take_in(database, now=30 * DAY)
    assert take_in(database, now=30 * DAY + 1)
    assert database.deliveries.forget(before=30 * DAY) == 0
    assert database.deliveries.forget(before=31 * DAY) == 1


def test_one_of_many_racing_repeats_is_taken_in(database):
    with ThreadPoolExecutor(8) as pool:
        won = list(
            pool.map(
                lambda n: take_in(database, delivery=f"d{n % 10}", body=f"b{n % 10}", ref=f"refs/heads/{n % 10}"),
                range(80),
            )
        )
    assert sum(won) == 10
    assert len({each.id for each in queued(database)}) == 10


def test_a_newer_event_of_a_ref_makes_the_queued_one_needless(database):
    take_in(database)
    assert take_in(database, delivery="d2", body="b2", now=1001.0)
    (dropped,) = database.orders.list(states=["dropped"], projects=None, limit=10)
    assert "newer event" in dropped.note
    assert [each.id for each in queued(database)] == [dropped.id + 1]


def test_an_order_that_yields_displaces_nobody_who_waits(database):
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
def test_an_order_whose_driver_is_gone_is_taken_up_again_with_its_run(database):
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


def test_text_of_strangers_comes_back_as_it_was(database):
    wild = "refs/heads/'; DROP TABLE orders; --%s?\"<b>\u202e\\x00é🦆"
    database.orders.add(order(wild, branch=wild, note="100 %"), now=1.0)
    mine = claim(database)
    assert (mine.ref, mine.branch, mine.note) == (wild, wild, "100 %")
    database.runs.put([row(1, subject="50% off_now!", branch="a\0b")])
    assert [each.branch for each in database.runs.search(RunFilter(text="50% OFF_"))] == ["a\0b"]
    assert database.runs.search(RunFilter(text="50x")) == []
    assert database.runs.search(RunFilter(text="offxnow")) == []
    assert len(database.runs.search(RunFilter(branch="a\0b"))) == 1


def test_a_row_of_a_run_never_goes_back(database):
    database.runs.put([row(1, seq=5, verdict="open")])
    database.runs.put([row(1, seq=7, verdict="failed")])
    database.runs.put([row(1, seq=6, verdict="passed")])
    assert database.runs.get(row(1).run) == row(1, seq=7, verdict="failed")
    assert database.runs.get("absent") is None


def test_pages_go_from_new_to_old_and_miss_nothing(database):
    rows = [row(number, created=f"2026-01-01T00:00:{number // 3:02d}.000Z") for number in range(20)]
    database.runs.put(rows)
    seen, before = [], None
    while page := database.runs.search(RunFilter(limit=3, before=before)):
        seen += page
        before = (page[-1].created, page[-1].run)
    assert seen == sorted(rows, key=lambda each: (each.created, each.run), reverse=True)


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({}, [4, 3, 2, 1]),
        ({"project": "beta"}, [2]),
        ({"projects": ("beta", "gamma")}, [3, 2]),
        ({"projects": ("beta",), "project": "alpha"}, []),
        ({"projects": ()}, []),
        ({"branch": "topic"}, [4]),
        ({"verdict": "failed"}, [3]),
        ({"pull_request": 7}, [4]),
        ({"commit": f"{3:040x}"[:39]}, [4, 3, 2, 1]),
        ({"commit": f"{3:040x}"}, [3]),
        ({"text": "CHANGE 2"}, [2]),
        ({"text": "topic"}, [4]),
        ({"projects": ("alpha", "beta", "gamma"), "limit": 2}, [4, 3]),
        ({"projects": ("alpha", "gamma"), "before": ("2026-01-01T00:00:00004.000Z", "alpha-00000004-abcdef")}, [3, 1]),
    ],
)
def test_every_filter_holds(database, wanted, numbers):
    database.runs.put(
        [
            row(1),
            row(2, project="beta"),
            row(3, project="gamma", verdict="failed"),
            row(4, branch="topic", pull_request=7),
        ]
    )
    assert [int(each.commit, 16) for each in database.runs.search(RunFilter(**wanted))] == numbers


def test_runs_are_counted(database):
    database.runs.put([row(1), row(2, verdict="failed"), row(3, project="beta")])
    assert database.runs.counts(None) == {("alpha", "passed"): 1, ("alpha", "failed"): 1, ("beta", "passed"): 1}
    assert database.runs.counts(["beta"]) == {("beta", "passed"): 1}
    assert database.runs.counts([]) == {}


def test_tokens_are_found_by_digest_until_they_end_or_are_revoked(database):
    reader = Principal(name="ci", roles={"alpha": "reader"})
    database.tokens.add(digest="ab" * 32, principal=reader, expires=None, now=1.0)
    database.tokens.add(digest="cd" * 32, principal=reader, expires=100.0, now=2.0)
    assert database.tokens.find("ab" * 32, now=1e9) == reader
    assert database.tokens.find("cd" * 32, now=99.0) == reader
    assert database.tokens.find("cd" * 32, now=100.0) is None
    assert database.tokens.find("ab", now=1.0) is None
    assert database.tokens.list() == [("abababab", reader, None), ("cdcdcdcd", reader, 100.0)]
    assert database.tokens.revoke("") == 0
    assert database.tokens.revoke("abab") == 1
    assert [first for first, _, _ in database.tokens.list()] == ["cdcdcdcd"]


def test_a_transaction_that_fails_leaves_nothing(database):
    with pytest.raises(Exception):  # noqa: B017, PT011  # a value that no database holds
        take_in(database, ref="refs/heads/\ud800")
    assert queued(database) == []
    assert take_in(database)


def test_what_was_written_is_there_when_it_is_opened_again(url):
    first = open_database(url)
    take_in(first)
    first.runs.put([row(1)])
    first.close()
    second = open_database(url)
    assert not take_in(second)
    assert len(queued(second)) == 1
    assert second.runs.get(row(1).run) == row(1)
    assert second.check() is None
    second.close()


def test_a_newer_version_is_refused_in_a_sentence(url, database):
    database.orders._engine.write(lambda session: session.execute("UPDATE meta SET value = 99 WHERE name = 'version'"))
    with pytest.raises(ConfigError, match=r"version 99.*newer gangline"):
        open_database(url)
    assert "99" in database.check().detail


def test_a_sound_database_has_nothing_to_say(database):
    assert database.check() is None


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


def test_a_ref_that_was_refused_is_told_until_it_is_ordered_again(database):
    for ref in ("refs/heads/main", "refs/heads/other"):
        database.orders.add(order(ref), now=1.0)
        database.orders.settle(replace(claim(database), state="done", note="line.toml: no"), holder="me")
    told = database.orders.refused(projects=None, limit=9)
    assert [(each.ref, each.note) for each in told] == [
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
