"""A PostgreSQL that goes and comes back."""

import psycopg
import pytest
from tests.contracts.database.rows import order

from gangline.errors import ConfigError, StorageError
from gangline.serve.database.open import open_database

pytestmark = pytest.mark.tools


@pytest.fixture
def opened(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS gangline CASCADE")
    database = open_database(postgres_url)
    yield database
    database.close()


def end_connections(url):
    with psycopg.connect(url, autocommit=True) as connection:
        others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
        connection.execute(f"SELECT pg_terminate_backend(pid) {others}")


def test_connections_that_died_while_idle_are_replaced(opened, postgres_url):
    opened.orders.add(order(), now=1.0)
    end_connections(postgres_url)
    opened.orders.add(order("refs/heads/b"), now=2.0)
    assert opened.orders.counts() == {"queued": 2}


def test_a_connection_that_dies_in_a_transaction_leaves_nothing_behind(opened, postgres_url):
    def work(session):
        session.execute("INSERT INTO turns (project, served) VALUES ('half', 0)")
        end_connections(postgres_url)
        session.execute("INSERT INTO turns (project, served) VALUES ('whole', 0)")

    with pytest.raises(StorageError, match="the database failed"):
        opened.orders._engine.write(work)
    left = opened.orders._engine.read(lambda session: session.rows("SELECT project FROM turns"))
    assert left == []


def test_a_server_that_is_not_there_is_reported_without_the_password(tmp_path):
    with pytest.raises(StorageError, match=r"serve\.database") as refused:
        open_database(f"postgresql://me:hunter2@/nothing?host={tmp_path}")
    assert "hunter2" not in str(refused.value)


def test_another_kind_of_url_is_refused():
    with pytest.raises(ConfigError, match="mysql"):
        open_database("mysql://me:hunter2@host/x")
