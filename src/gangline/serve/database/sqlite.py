"""SQLite as engine: one thread writes, each commit is on the disk (WAL, `synchronous=FULL`) before it is acknowledged.

Whatever is waiting when the writer begins goes into one commit, so a burst of a thousand deliveries costs a few dozen
waits for the disk; each piece has a savepoint of its own and fails alone. Readers have connections of their own.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from gangline.errors import GanglineError, StorageError
from gangline.serve.database import schema, sqlite_integrity
from gangline.serve.database.engine import DatabaseSession, T, closing_on_error
from gangline.serve.database.sqlite_connection import (
    TYPES,
    SqliteSession,
    check_free_space,
    connect,
    problem_text,
    transaction,
    translate_errors,
)
from gangline.serve.database.types import DatabaseProblem

MAX_BATCH = 256
"""Most pieces of work in one commit."""

Piece = tuple[Callable[[DatabaseSession], Any], "Future[Any]"]


class SqliteEngine:
    """`DatabaseEngine` over one file: one writer thread, a connection for each reader; thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open or make the database at `path`.

        Raises:
            ConfigError: A newer gangline made it.
            StorageError: It cannot be opened or written.
        """
        self.path = path
        with translate_errors(path), ExitStack() as resources:
            self.restored = resources.enter_context(sqlite_integrity.open_checked(path))
            """What was damaged and put aside, in one sentence."""
            self._writer = resources.enter_context(closing(connect(path)))
            self._file = _file_identity(path)
            self._resources = resources.pop_all()
        self._mark = sqlite_integrity.CommitMark(path)
        self._work: SimpleQueue[Piece | None] = SimpleQueue()
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._write_loop, name="database-writer", daemon=True)
        self._thread.start()
        with closing_on_error(self):
            self.write(lambda session: schema.migrate(session, TYPES))

    def write(self, work: Callable[[DatabaseSession], T]) -> T:
        answer: Future[T] = Future()
        with self._lock:
            if self._closed.is_set():
                raise StorageError(f"the database {self.path} is closed")
            self._work.put((work, answer))
        with translate_errors(self.path):
            return answer.result()

    def read(self, work: Callable[[DatabaseSession], T]) -> T:
        with translate_errors(self.path), self._reader() as connection, transaction(connection, "BEGIN"):
            return work(SqliteSession(connection))

    def check(self) -> DatabaseProblem | None:
        if _file_identity(self.path) != self._file:
            return DatabaseProblem("is moved or deleted", self._moved_message())
        try:
            with translate_errors(self.path):
                check_free_space(self.path)
            version = self.write(schema.commit_probe)
            found = self.read(lambda session: session.rows("PRAGMA quick_check(1)"))
        except GanglineError as error:
            return DatabaseProblem(problem_text(error.__cause__), str(error))
        if found != [("ok",)]:
            again = "stop the service and start it again"
            return DatabaseProblem("is damaged", f"the database {self.path} is damaged: {found[0][0]}; {again}")
        return schema.version_problem(version)

    def close(self) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._work.put(None)
        self._thread.join()
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        self._resources.close()

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._closed.is_set():
                raise StorageError(f"the database {self.path} is closed")
            connection = self._idle.pop() if self._idle else None
        connection = connection or connect(self.path, make=False)
        try:
            yield connection
        finally:
            with self._lock:
                if self._closed.is_set():
                    connection.close()
                else:
                    self._idle.append(connection)

    def _write_loop(self) -> None:
        while (batch := _next_batch(self._work)) is not None:
            self._commit(batch)

    def _commit(self, batch: list[Piece]) -> None:
        """All of `batch` in one commit; who raised is undone alone, and answered after the commit like the others."""
        answers: list[Callable[[], None]] = []
        try:
            with transaction(self._writer):
                answers = [_perform(self._writer, work, answer) for work, answer in batch]
                generation = sqlite_integrity.next_generation(self._writer)
            self._require_file()
            self._mark.write(generation)
        except Exception as error:  # any error is passed to the threads that wait
            answers = [_refusal(answer, error) for _, answer in batch]
        for answer in answers:
            answer()

    def _require_file(self) -> None:
        """What is written to a file without a name is gone when we end: it is not acknowledged."""
        if _file_identity(self.path) != self._file:
            raise StorageError(self._moved_message())

    def _moved_message(self) -> str:
        return f"the database {self.path} was moved or deleted: put it back, or stop the service and start it again"


def _file_identity(path: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _next_batch(work: "SimpleQueue[Piece | None]") -> list[Piece] | None:
    """Waiting pieces of work, at least one; None after the last one when the engine closes."""
    first = work.get()
    batch = [] if first is None else [first]
    while batch and len(batch) < MAX_BATCH:
        try:
            piece = work.get_nowait()
        except Empty:
            break
        if piece is None:
            work.put(None)
            break
        batch.append(piece)
    return batch or None


def _perform(
    connection: sqlite3.Connection, work: Callable[[DatabaseSession], T], answer: "Future[T]"
) -> Callable[[], None]:
    connection.execute("SAVEPOINT piece")
    try:
        result = work(SqliteSession(connection))
    except Exception as error:  # it is the caller's, and handed to the caller
        connection.execute("ROLLBACK TO piece")
        connection.execute("RELEASE piece")
        return _refusal(answer, error)
    connection.execute("RELEASE piece")
    return lambda: answer.set_result(result)


def _refusal(answer: "Future[Any]", error: Exception) -> Callable[[], None]:
    return lambda: answer.set_exception(error)
