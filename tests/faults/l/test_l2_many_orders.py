"""L2: ten thousand orders of fifty projects are taken up in fair turn, and each turn is quick."""

import time
from collections import Counter
from dataclasses import replace

import pytest
from tests.contracts.database.rows import order
from tests.contracts.database.servers import postgres
from tests.faults.instruments.memory import peak_bytes

from gangline.serve.database.open import open_database

pytestmark = pytest.mark.row("L2", full="10,000 orders of 50 projects")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.tools)])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "gangline.db")
    else:
        with postgres() as found:
            yield found


@pytest.mark.parametrize(("projects", "greedy"), [(10, 200), pytest.param(50, 7550, marks=pytest.mark.slow)])
def test_a_greedy_project_holds_up_no_other(url, projects, greedy):
    database, before = open_database(url), peak_bytes()
    others = 50
    for n in range(greedy):
        database.orders.add(order(f"refs/heads/{n}", project="greedy"), now=1.0)
    for n in range((projects - 1) * others):
        database.orders.add(order(f"refs/heads/{n}", project=f"p{n % (projects - 1)}"), now=2.0)
    taken, seconds = [], []
    while True:
        began = time.perf_counter()
        found = database.orders.claim(holder="me", now=3.0, lease_seconds=60.0)
        seconds.append(time.perf_counter() - began)
        if found is None:
            break
        taken.append(found)
        database.orders.settle(replace(found, state="done"), holder="me")
    database.close()
    assert len({each.id for each in taken}) == greedy + (projects - 1) * others
    for turn in range(others):
        block = taken[turn * projects : (turn + 1) * projects]
        assert set(Counter(each.project for each in block).values()) == {1}
    if projects == 50:  # on a machine of its own
        assert sorted(seconds)[int(0.99 * len(seconds))] <= 0.3
        assert peak_bytes() - before <= 512 << 20


def test_a_database_with_many_orders_is_open_soon(tmp_path):
    database = open_database(str(tmp_path / "gangline.db"))
    for n in range(500):
        database.orders.add(order(f"refs/heads/{n}"), now=1.0)
    database.close()
    began = time.monotonic()
    open_database(str(tmp_path / "gangline.db")).close()
    assert time.monotonic() - began <= 10.0
