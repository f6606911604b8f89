"""PostgreSQL as engine, for several services over one state. The URL may hold a password: no message shows it."""

from contextlib import ExitStack
from functools import partial
from typing import Any
from zlib import crc32

import psycopg
import sqlalchemy

from gangline.serve.database import schema
from gangline.serve.database.engine import IS_DAMAGED, IS_FULL, IS_READ_ONLY, DatabaseEngine, DatabaseSession

TYPES = {
    "text": 'TEXT COLLATE "C"',
    "real": "DOUBLE PRECISION",
    "integer": "BIGINT",
    "numbers_of_orders": "CREATE SEQUENCE number_of_orders",
}
MAX_CONNECTIONS = 4
"""More wait for each other: with ten, half of a thousand pushes on two cores waited a second instead of 50 ms."""
STATEMENT_SECONDS = 30
_SETTINGS = (
    f"-c search_path=gangline -c synchronous_commit=on -c statement_timeout={STATEMENT_SECONDS}s"
    f" -c idle_in_transaction_session_timeout={STATEMENT_SECONDS}s -c client_encoding=UTF8"
)
_KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""A partition is noticed within seconds, not hours."""


class PostgresSession(DatabaseSession):
    """One transaction of PostgreSQL, where writers meet."""

    for_update = " FOR UPDATE"

    def next_number(self, name: str) -> int:
        return int(self.rows("SELECT nextval(?)", f"number_of_{name}")[0][0])

    def lock(self, what: str) -> None:
        self.execute("SELECT pg_advisory_xact_lock(?)", crc32(f"gangline {what}".encode()))

    def marked(self, sql: str) -> str:
        """No statement of ours has a percent sign."""
        return sql.replace("?", "%s")


class PostgresEngine(DatabaseEngine):
    """`DatabaseEngine` over a server, with the tables in the schema `gangline`."""

    session = PostgresSession
    when_failed = "does serve.database name one that answers?"
    when_damaged = "restore it from a backup"

    def __init__(self, url: str) -> None:
        """Connect, and make the tables where there are none.

        Raises:
            ConfigError: A newer gangline made them.
            StorageError: It does not answer, or refuses us.
        """
        connect = partial(psycopg.connect, url, connect_timeout=10, options=_SETTINGS, **_KEEPALIVE)
        pool = sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=connect, pool_size=MAX_CONNECTIONS, max_overflow=0, pool_pre_ping=True
        )
        reading = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        super().__init__(pool, name="the database", reading=reading)
        with ExitStack() as failed:
            failed.callback(self.close)
            self.write(_migrate)
            failed.pop_all()

    def problem_of(self, cause: BaseException | None) -> str:
        match cause:
            case psycopg.errors.DiskFull():
                return IS_FULL
            case psycopg.errors.ReadOnlySqlTransaction():
                return IS_READ_ONLY
            case psycopg.errors.DataCorrupted() | psycopg.errors.IndexCorrupted():
                return IS_DAMAGED
            case _:
                return "is away"


def _migrate(session: DatabaseSession) -> None:
    session.lock("schema")
    session.execute("CREATE SCHEMA IF NOT EXISTS gangline")
    schema.migrate(session, TYPES)
