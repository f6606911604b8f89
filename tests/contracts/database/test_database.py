"""What every state database promises, SQLite and PostgreSQL alike; `test_orders.py` has its orders."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.contracts.database.rows import claim, order, queued, row, take_in

from gangline.errors import ConfigError
from gangline.serve.database.open import open_database
from gangline.serve.database.types import Principal, RunFilter

DAY = 86_400.0


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
