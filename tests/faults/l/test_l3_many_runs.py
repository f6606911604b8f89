"""L3: a hundred thousand runs cost a list, a look-up and a pass over the store no more than they should."""

import json
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event
from tests.contracts.database.rows import order
from tests.faults.l.many_runs import fill, named, pages, put_records, rows, searches

from gangline.serve.database.open import open_database
from gangline.serve.database.types import RunFilter

pytestmark = pytest.mark.row("L3", full="100,000 runs")
ROOT = Path(__file__).parents[3]
FEW, MANY, WHOLE = 1000, 4000, 100_000


@contextmanager
def index_of(path, count):
    database = open_database(str(path))
    try:
        stored = list(rows(count))
        fill(database, stored)
        yield database, stored
    finally:
        database.close()


def instructions(database, ask):
    """How many steps of SQLite's machine `ask` takes: the same on a busy machine and on an idle one."""
    engine, taken = database.runs._engine, 0

    def count():
        nonlocal taken
        taken += 1

    def watch(connection, _record, _proxy):
        connection.set_progress_handler(count, 1)

    ask()  # a connection is there and knows the tables
    event.listen(engine._pool, "checkout", watch)
    try:
        ask()
    finally:
        event.remove(engine._pool, "checkout", watch)
        engine._pool.dispose()
    return taken


def cost_of_each(path, count):
    with index_of(path, count) as (database, stored):
        cost = {
            what: instructions(database, lambda wanted=wanted: database.runs.search(replace(wanted, limit=10)))
            for what, wanted in pages(stored)
        }
        one = stored[count // 2].run
        cost["look-up"] = instructions(database, lambda: database.runs.get(one))
        for number in range(count // 10):
            database.orders.add(order(f"refs/heads/{number}", asked_by=f"somebody #{number}"), now=1.0)
        newest = f"somebody #{count // 10 - 1}"
        cost["a start that is tried again"] = instructions(
            database, lambda: database.orders.find_by_requester(project="alpha", by=newest)
        )
        return cost


def test_no_page_or_look_up_grows_with_the_number_of_runs(tmp_path):
    few, many = (cost_of_each(tmp_path / f"{count}.db", count) for count in (FEW, MANY))
    grown = {what: (few[what], cost) for what, cost in many.items() if cost > 1.5 * few[what] + 100}
    assert grown == {}


def test_page_after_page_shows_every_run_once(tmp_path):
    with index_of(tmp_path / "index.db", FEW) as (database, stored):
        seen, wanted = [], RunFilter(limit=70)
        while page := database.runs.search(wanted):
            seen += [each.run for each in page]
            wanted = replace(wanted, before=(page[-1].created, page[-1].run))
    assert seen == [each.run for each in reversed(stored)]


@pytest.mark.parametrize("count", [300, pytest.param(WHOLE, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_pass_finds_all_records_within_bounded_memory_and_reads_none_twice(tmp_path, count):
    stored = [named(each) for each in rows(count)]
    put_records(tmp_path / "store", stored)
    command = [sys.executable, str(Path(__file__).with_name("index_pass.py"))]
    done = subprocess.run(
        [*command, str(tmp_path / "store"), str(tmp_path / "index.db")],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    reported = json.loads(done.stdout)
    assert reported["count"] == count
    assert reported["rss_bytes"] <= 300 << 20
    assert (reported["first_reads"], reported["again_reads"]) == (count, 0)
    database = open_database(str(tmp_path / "index.db"))
    assert sum(database.runs.counts(None).values()) == count
    assert database.runs.get(stored[-1].run).subject == stored[-1].subject
    database.close()
    if count == WHOLE:  # on a machine of its own
        assert reported["first_seconds"] <= 120.0


@pytest.mark.slow
def test_pages_and_look_ups_of_a_hundred_thousand_runs_are_quick(tmp_path):
    with index_of(tmp_path / "index.db", WHOLE) as (database, stored):
        for what, wanted in [*pages(stored), *searches()]:
            assert p99(lambda wanted=wanted: database.runs.search(wanted)) <= 0.050, what
        names = iter(random.Random(2).choices(stored, k=100))
        assert p99(lambda: database.runs.get(next(names).run)) <= 0.010


def p99(ask, rounds=100):
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        ask()
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[int(0.99 * (rounds - 1))]
