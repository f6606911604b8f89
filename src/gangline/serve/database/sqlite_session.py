"""Connections to an SQLite file: how they are set, one transaction, what its errors mean."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline.errors import IntegrityError, StorageError
from gangline.serve.database.engine import Row

TYPES = {
    "text": "TEXT",
    "real": "REAL",
    "integer": "INTEGER",
    "numbers_of_orders": "INSERT INTO meta (name, value) VALUES ('orders', 0)",
}
BUSY_SECONDS = 10.0
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class SqliteSession:
    for_update = ""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, *values: object) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def change(self, sql: str, *values: object) -> int:
        return self._connection.execute(sql, values).rowcount

    def number(self, name: str) -> int:
        return int(self.rows("UPDATE meta SET value = value + 1 WHERE name = ? RETURNING value", name)[0][0])

    def alone(self, what: str) -> None:
        """Writers of SQLite always are."""


def connect(path: Path, *, make: bool = True) -> sqlite3.Connection:
    """A connection; without `make` a file that is not there stays away."""
    url = f"{path.absolute().as_uri()}?mode={'rwc' if make else 'rw'}"
    connection = sqlite3.connect(url, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Errors of SQLite, and of the files beside it, as ours."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"the database {path} failed: {error.strerror or error}; is the disk full?") from error
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise IntegrityError(
                f"the database {path} is damaged ({error}); stop the service and start it again:"
                " it puts the damaged file aside and keeps what is whole"
            ) from error
        raise StorageError(
            f"the database {path} failed: {error}; is the disk full, or does another hold it?"
        ) from error
