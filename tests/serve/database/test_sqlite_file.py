"""The SQLite file under a service: what happens to the file itself, and how writes share a commit."""

import threading
import time

import pytest
from tests.contracts.database.rows import make_older, order

from gangline.errors import StorageError
from gangline.serve.database.open import open_database


@pytest.fixture
def database(tmp_path):
    opened = open_database(str(tmp_path / "serve.db"))
    yield opened
    opened.close()


def test_a_file_that_has_lost_its_name_is_not_ready(tmp_path, database):
    path = tmp_path / "serve.db"
    path.rename(tmp_path / "elsewhere")
    assert "put it back, or stop the service" in database.check().detail
    path.touch()  # another one of the same name
    assert database.check().summary == "is moved or deleted"
    (tmp_path / "elsewhere").rename(path)
    assert database.check() is None


def test_what_waits_together_is_committed_together_and_fails_alone(database):
    engine, connections, outcomes = database.orders._engine, [], {}
    began, may_end = threading.Event(), threading.Event()

    def slow(_session):
        began.set()
        assert may_end.wait(30)

    def insert(session, number):
        connections.append(session._connection)
        session.execute("INSERT INTO turns (project, served) VALUES (?, 0)", f"p{number}")
        if number == 3:
            raise StorageError("three fails")

    def write(number):
        try:
            outcomes[number] = engine.write(lambda session: insert(session, number))
        except StorageError as error:
            outcomes[number] = str(error)

    threads = [threading.Thread(target=engine.write, args=(slow,))]
    threads += [threading.Thread(target=write, args=(number,)) for number in range(8)]
    threads[0].start()
    assert began.wait(30)
    for each in threads[1:]:
        each.start()
    while len(engine._waiting) < 8:
        time.sleep(0.01)
    may_end.set()
    for each in threads:
        each.join(30)
    assert len(set(connections)) == 1, "each had a commit of its own"
    assert outcomes == {number: "three fails" if number == 3 else None for number in range(8)}
    kept = engine.read(lambda session: session.rows("SELECT project FROM turns ORDER BY project"))
    assert [project for (project,) in kept] == [f"p{number}" for number in range(8) if number != 3]


def test_a_file_of_an_older_gangline_keeps_its_orders(tmp_path):
    database = open_database(str(tmp_path / "serve.db"))
    database.orders.add(order("refs/heads/kept"), now=1.0)
    database.orders._engine.write(lambda session: make_older(session.execute, 2))
    database.close()
    again = open_database(str(tmp_path / "serve.db"))
    assert [each.ref for each in again.orders.list(states=["queued"], projects=None, limit=9)] == ["refs/heads/kept"]
    assert again.orders.add(order("refs/heads/new"), now=2.0).id == 2
    again.close()
