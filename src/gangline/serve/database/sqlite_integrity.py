"""Integrity of an SQLite file: damage is found at the start, moved aside, and reported in one sentence.

Three checks: SQLite's own check of its structure, the seal of every row, and a mark file with the number of
acknowledged commits.
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gangline.errors import StorageError
from gangline.serve.database import schema
from gangline.serve.database.engine import Row
from gangline.serve.database.row_checksums import TABLES, columns, is_intact, placeholders, seal
from gangline.serve.database.sqlite_connection import TYPES, SqliteSession, connect, transaction


class CommitMark:
    """Number of acknowledged commits, in a separate file next to the database."""

    def __init__(self, database: Path) -> None:
        self._path = Path(f"{database}.mark")

    def read(self) -> int:
        """0 where there is none, or one that cannot be read."""
        try:
            number, _, check = self._path.read_text("ascii").strip().partition(" ")
        except (OSError, UnicodeDecodeError):
            return 0
        return int(number) if number.isdecimal() and check == seal([number]) else 0

    def write(self, generation: int) -> None:
        text = f"{generation:020d}"
        with self._path.open("r+b" if self._path.exists() else "w+b", buffering=0) as file:
            file.write(f"{text} {seal([text])}\n".encode())


def next_generation(connection: sqlite3.Connection) -> int:
    """Count this commit, inside its transaction."""
    rows = connection.execute(
        "INSERT INTO meta (name, value) VALUES ('generation', 1)"
        " ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value"
    ).fetchall()
    return int(rows[0][0])


@contextmanager
def open_checked(database: Path) -> Iterator["str | None"]:
    """Check the file before use, unless another process uses it and has checked it.

    Yields:
        What was put aside and lost, in one sentence; None where all is well.

    Raises:
        StorageError: The folder cannot be written.
    """
    try:
        database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = Path(f"{database}.lock").open("ab")  # noqa: SIM115  # closed with the database
    except OSError as error:
        raise StorageError(
            f"wanted to write {database.parent}, found: {error.strerror}; name another serve.home"
        ) from error
    with closing(file):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield None
            return
        found = restore_damaged(database)
        fcntl.flock(file, fcntl.LOCK_SH)
        yield found


def restore_damaged(database: Path) -> str | None:
    """Put a damaged database aside and keep its whole rows in a new one; what was found, None where all is well."""
    damage = find_damage(database) if database.exists() else None
    if damage is None:
        return None
    moved_to = Path(f"{database}.damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}")
    salvaged = _salvage(database)
    copy = _write_copy(database, salvaged)
    for end in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{database}{end}").rename(f"{moved_to}{end}")
    copy.rename(database)
    counts = ", ".join(f"{len(rows)} {table}" for table, rows in salvaged.items())
    return (
        f"the database was damaged ({damage}) and lies at {moved_to}; kept: {counts}. What is missing comes again:"
        " runs from their records, pushes from the heads of their branches; orders of the API and tokens do not"
    )


def find_damage(database: Path) -> str | None:
    """What is wrong with the file, in a few words; None: it is what was written."""
    try:
        with closing(_connect_leniently(database)) as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchall()
            if found != [("ok",)]:
                return f"its structure is broken: {found[0][0]}"
            return _find_changed_rows(connection) or _find_lost_commits(connection, CommitMark(database).read())
    except sqlite3.Error as error:
        return str(error)


def _connect_leniently(database: Path) -> sqlite3.Connection:
    """A connection that also reads invalid text; the row's checksum detects it."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.text_factory = lambda data: data.decode(errors="surrogateescape")
    return connection


def _find_changed_rows(connection: sqlite3.Connection) -> str | None:
    present = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for table in TABLES:
        if table in present:
            bad = sum(not is_intact(row) for row in connection.execute(f"SELECT {columns(table)} FROM {table}"))
            if bad:
                return f"{bad} rows of {table} changed on the disk"
    return None


def _find_lost_commits(connection: sqlite3.Connection, acknowledged: int) -> str | None:
    try:
        rows = connection.execute("SELECT value FROM meta WHERE name = 'generation'").fetchall()
    except sqlite3.OperationalError:
        rows = []
    found = int(rows[0][0]) if rows else 0
    return f"{acknowledged - found} acknowledged commits are gone" if found < acknowledged else None


def _salvage(database: Path) -> dict[str, list[Row]]:
    """Rows of each table whose seal holds, as far as they can be read."""
    salvaged: dict[str, list[Row]] = {table: [] for table in TABLES}
    with contextlib.suppress(sqlite3.Error), closing(_connect_leniently(database)) as connection:
        for table, rows in salvaged.items():
            with contextlib.suppress(sqlite3.Error):
                for row in connection.execute(f"SELECT {columns(table)} FROM {table} NOT INDEXED"):
                    if is_intact(row):
                        rows.append(row)  # what was read before an error stays
    return salvaged


def _write_copy(database: Path, salvaged: dict[str, list[Row]]) -> Path:
    """Create a database next to the damaged one from the intact rows."""
    copy = Path(f"{database}.new")
    copy.unlink(missing_ok=True)
    with closing(connect(copy)) as connection, transaction(connection):
        session = SqliteSession(connection)
        schema.migrate(session, TYPES)
        for table, rows in salvaged.items():
            for row in rows:
                session.execute(f"INSERT OR IGNORE INTO {table} ({columns(table)}) VALUES ({placeholders(row)})", *row)
        session.execute("UPDATE meta SET value = (SELECT COALESCE(MAX(id), 0) FROM orders) WHERE name = 'orders'")
        session.execute("INSERT INTO meta (name, value) VALUES ('generation', ?)", CommitMark(database).read())
        session.execute("INSERT INTO turns (project, served) SELECT DISTINCT project, 0 FROM orders")
    return copy
