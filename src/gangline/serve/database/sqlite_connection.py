"""Connections to an SQLite file: settings, one transaction, the free space check, and the meaning of errors.

The check writes about what a thousand deliveries need: one small commit may fit into pages that the log already has.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline.errors import IntegrityError, StorageError
from gangline.serve.database.engine import Row
from gangline.storage.folder.durable_files import write_synced

FREE_SPACE_BYTES = 1 << 20
"""About what a thousand deliveries add to the log."""
_IS_FULL, _IS_READ_ONLY, _IS_DAMAGED = "has a full disk", "is read-only", "is damaged"
_PROBLEM_BY_CODE = {
    errno.ENOSPC: _IS_FULL,
    errno.EDQUOT: _IS_FULL,
    errno.EROFS: _IS_READ_ONLY,
    sqlite3.SQLITE_FULL: _IS_FULL,
    sqlite3.SQLITE_READONLY: _IS_READ_ONLY,
    sqlite3.SQLITE_CORRUPT: _IS_DAMAGED,
    sqlite3.SQLITE_NOTADB: _IS_DAMAGED,
}


def check_free_space(database: Path) -> None:
    """Sync a file in the database's folder to disk, then remove it; raises OSError if that fails."""
    probe = Path(f"{database}.room")
    probe.unlink(missing_ok=True)
    write_synced(probe, os.urandom(FREE_SPACE_BYTES))  # noise, as zeros need no room on some file systems
    probe.unlink()


def problem_text(cause: BaseException | None) -> str:
    """What hinders a write, by what the system or SQLite raised; see `DatabaseProblem`."""
    if isinstance(cause, OSError):
        return _PROBLEM_BY_CODE.get(cause.errno or 0, "cannot be written")
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return _PROBLEM_BY_CODE.get(code, "cannot be written")


TYPES = {
    "text": "TEXT",
    "real": "REAL",
    "integer": "INTEGER",
    "numbers_of_orders": "INSERT INTO meta (name, value) VALUES ('orders', 0)",
}
BUSY_SECONDS = 10.0
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class SqliteSession:
    """`DatabaseSession` over a connection of sqlite3."""

    for_update = ""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, *values: object) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def execute(self, sql: str, *values: object) -> int:
        return self._connection.execute(sql, values).rowcount

    def next_number(self, name: str) -> int:
        return int(self.rows("UPDATE meta SET value = value + 1 WHERE name = ? RETURNING value", name)[0][0])

    def lock(self, what: str) -> None:
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
    """Commit when the block ends, roll back when it raises."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of its files as `errors` of gangline."""
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
