"""SQLite as engine: each commit is on the disk (WAL, `synchronous=FULL`) before it is acknowledged.

Whatever is waiting when a commit begins goes into it, so a burst of a thousand deliveries costs a few dozen waits for
the disk; each piece has a savepoint of its own and fails alone. Readers have connections of their own.
"""

import errno
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, event
from sqlalchemy.pool import QueuePool

from gangline.errors import GanglineError, IntegrityError, StorageError
from gangline.serve.database import schema
from gangline.serve.database.engine import IS_DAMAGED, IS_FULL, IS_READ_ONLY, DatabaseEngine, DatabaseSession, T
from gangline.serve.database.types import DatabaseProblem
from gangline.storage.folder.durable_files import write_synced

TYPES = {
    "text": "TEXT",
    "real": "REAL",
    "integer": "INTEGER",
    "numbers_of_orders": "INSERT INTO meta (name, value) VALUES ('orders', 0)",
}
BUSY_SECONDS = 10.0
FREE_SPACE_BYTES = 1 << 20
"""Space for about what a thousand deliveries add to the log."""
_PROBLEM_BY_CODE = {
    errno.ENOSPC: IS_FULL,
    errno.EDQUOT: IS_FULL,
    errno.EROFS: IS_READ_ONLY,
    sqlite3.SQLITE_FULL: IS_FULL,
    sqlite3.SQLITE_READONLY: IS_READ_ONLY,
    sqlite3.SQLITE_CORRUPT: IS_DAMAGED,
    sqlite3.SQLITE_NOTADB: IS_DAMAGED,
}

Piece = tuple[Callable[[DatabaseSession], Any], "Future[Any]"]


class SqliteEngine(DatabaseEngine):
    """`DatabaseEngine` over one file."""

    when_failed = "is the disk full, or does another hold it?"
    when_damaged = (
        "stop the service, move the file away with its -wal and -shm, and start it again: runs come from their records"
        " and pushes from the heads of their branches; tokens and orders of the API do not, `sqlite3 FILE .recover`"
        " reads them"
    )

    def __init__(self, path: Path) -> None:
        """Open or make the database at `path`.

        Raises:
            ConfigError: A newer gangline made it.
            IntegrityError: It is damaged.
            StorageError: It cannot be opened or written.
        """
        self._path, self._file = path, _make(path)
        self._waiting, self._turn = deque[Piece](), threading.Lock()
        pool = sqlalchemy.create_engine(
            "sqlite://", creator=partial(_connect, path), poolclass=QueuePool, pool_size=0, pool_reset_on_return=None
        )
        event.listen(pool, "begin", _begin)
        super().__init__(pool, name=f"the database {path}", reading={"begin": "BEGIN"})
        with ExitStack() as failed:
            failed.callback(self.close)
            self._require_whole("PRAGMA integrity_check(1)")
            self.write(lambda session: schema.migrate(session, TYPES))
            failed.pop_all()

    def write(self, work: Callable[[DatabaseSession], T]) -> T:
        answer: Future[T] = Future()
        self._waiting.append((work, answer))
        with self._turn:
            if not answer.done():
                self._commit([self._waiting.popleft() for _ in range(len(self._waiting))])
        with self.translated_errors():
            return answer.result()

    def check(self) -> DatabaseProblem | None:
        if not self._is_in_place():
            said = (
                f"the database {self._path} was moved or deleted: put it back, or stop the service and start it again"
            )
            return DatabaseProblem("is moved or deleted", said)
        try:
            with self.translated_errors():
                check_free_space(self._path)
            self._require_whole("PRAGMA quick_check(1)")
        except IntegrityError as error:
            return DatabaseProblem(IS_DAMAGED, str(error))
        except GanglineError as error:
            return DatabaseProblem(problem_text(error.__cause__), str(error))
        return super().check()

    def problem_of(self, cause: BaseException | None) -> str:
        return problem_text(cause)

    def _is_in_place(self) -> bool:
        """Whether the file still has its name: what is written to one without goes when the service ends."""
        try:
            return os.path.samestat(self._path.stat(), self._file)
        except FileNotFoundError:
            return False

    def _require_whole(self, pragma: str) -> None:
        """Let SQLite check the structure of its file."""
        said = " ".join(str(self.read(lambda session: session.rows(pragma))[0][0]).split())
        if said != "ok":
            raise IntegrityError(f"the database {self._path} is damaged: {said}; {self.when_damaged}")

    def _commit(self, batch: list[Piece]) -> None:
        """All of `batch` in one commit; who raised is undone alone, and answered after the commit like the others."""
        try:
            with self._pool.begin() as connection:
                answers = [_attempt(connection, work, answer) for work, answer in batch]
        except BaseException as error:  # each thread that waits raises it
            answers = [partial(answer.set_exception, error) for _, answer in batch]
        for answer in answers:
            answer()


def _attempt(connection: Connection, work: Callable[[DatabaseSession], T], answer: "Future[T]") -> Callable[[], None]:
    try:
        with connection.begin_nested():
            result = work(DatabaseSession(connection))
    except Exception as error:  # it is the caller's, and handed to the caller
        return partial(answer.set_exception, error)
    return partial(answer.set_result, result)


def check_free_space(database: Path) -> None:
    """Sync a file in the database's folder to disk, then remove it; raises OSError if that fails.

    It has about what a thousand deliveries need: one small commit may fit into pages that the log already has.
    """
    probe = Path(f"{database}.room")
    probe.unlink(missing_ok=True)
    write_synced(probe, os.urandom(FREE_SPACE_BYTES))  # noise, as zeros need no room on some file systems
    probe.unlink()


def problem_text(cause: BaseException | None) -> str:
    """What hinders a write, by what the system or SQLite raised; see `DatabaseProblem`."""
    code = (cause.errno or 0) if isinstance(cause, OSError) else getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return _PROBLEM_BY_CODE.get(code, "cannot be written")


def _make(path: Path) -> os.stat_result:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch()
        return path.stat()
    except OSError as error:
        raise StorageError(f"wanted to write {path}, found: {error.strerror}; name another serve.home") from error


def _connect(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there: one that was deleted is not made again while it is open."""
    url = f"{path.as_uri()}?mode=rw"
    connection = sqlite3.connect(url, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN IMMEDIATE"))
