"""PostgreSQL as engine, for several services over one state: connections that are kept, transactions, its errors.

The URL may hold a password: no message shows it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zlib import crc32

from gangline.errors import GanglineError, IntegrityError, StorageError
from gangline.serve.database import schema
from gangline.serve.database.engine import DatabaseSession, Row, T, closing_on_error
from gangline.serve.database.types import DatabaseProblem

if TYPE_CHECKING:
    import psycopg

TYPES = {
    "text": 'TEXT COLLATE "C"',
    "real": "DOUBLE PRECISION",
    "integer": "BIGINT",
    "numbers_of_orders": "CREATE SEQUENCE number_of_orders",
}
CONNECT_SECONDS = 10
STATEMENT_SECONDS = 30
MAX_CONNECTIONS = 4
"""More wait for each other: with ten, half of a thousand pushes on two cores waited a second instead of 50 ms."""
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


class PostgresSession:
    """`DatabaseSession` over a connection of psycopg."""

    for_update = " FOR UPDATE"

    def __init__(self, connection: "psycopg.Connection") -> None:
        self._connection = connection

    def rows(self, sql: str, *values: object) -> list[Row]:
        return self._connection.execute(_query(sql), values).fetchall()

    def execute(self, sql: str, *values: object) -> int:
        return self._connection.execute(_query(sql), values or None).rowcount

    def next_number(self, name: str) -> int:
        return int(self.rows("SELECT nextval(?)", f"number_of_{name}")[0][0])

    def lock(self, what: str) -> None:
        self._connection.execute(_query("SELECT pg_advisory_xact_lock(?)"), (crc32(f"gangline {what}".encode()),))


class PostgresEngine:
    """`DatabaseEngine` over a small pool of connections; thread-safe."""

    def __init__(self, url: str) -> None:
        """Connect, and make the tables in the schema `gangline` where there are none.

        Raises:
            ConfigError: A newer gangline made them.
            StorageError: It does not answer, or refuses us.
        """
        self._url = url
        self._idle: list[psycopg.Connection] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._closed = False
        with closing_on_error(self):
            self.write(_migrate)

    def write(self, work: Callable[[DatabaseSession], T]) -> T:
        return self._transaction(work, "BEGIN")

    def read(self, work: Callable[[DatabaseSession], T]) -> T:
        return self._transaction(work, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def check(self) -> DatabaseProblem | None:
        try:
            return schema.version_problem(self.write(schema.commit_probe))
        except GanglineError as error:
            return DatabaseProblem(_summary(error.__cause__), str(error))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _transaction(self, work: Callable[[DatabaseSession], T], begin: str) -> T:
        with _translate_errors(), self._slots:
            connection = self._begin(begin)
            try:
                result = work(PostgresSession(connection))
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back(connection)
                raise
            self._release(connection)
            return result

    def _begin(self, begin: str) -> "psycopg.Connection":
        """A connection inside a transaction; one that died while it was idle is replaced."""
        import psycopg

        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            try:
                connection.execute(_query(begin))
            except psycopg.OperationalError:
                connection.close()
            else:
                return connection
        connection = psycopg.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, options=_SETTINGS, **_KEEPALIVE
        )
        connection.execute(_query(begin))
        return connection

    def _roll_back(self, connection: "psycopg.Connection") -> None:
        """After an error: undo, or where that fails let the connection go, which undoes as well."""
        import psycopg

        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        else:
            self._release(connection)

    def _release(self, connection: "psycopg.Connection") -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()


def _migrate(session: DatabaseSession) -> None:
    session.lock("schema")
    session.execute("CREATE SCHEMA IF NOT EXISTS gangline")
    schema.migrate(session, TYPES)


def _query(sql: str) -> bytes:
    """Values are marked `%s` here; no statement of ours has a percent sign."""
    return sql.replace("?", "%s").encode()


@contextmanager
def _translate_errors() -> Iterator[None]:
    """PostgreSQL's errors as ours."""
    import psycopg

    try:
        yield
    except _damage_errors() as error:
        raise IntegrityError(f"the database is damaged: {_one_line(error)}; restore it from a backup") from error
    except psycopg.Error as error:
        raise StorageError(
            f"the database failed: {_one_line(error)}; does serve.database name one that answers?"
        ) from error


def _damage_errors() -> "tuple[type[psycopg.Error], ...]":
    import psycopg

    return psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted


def _summary(cause: BaseException | None) -> str:
    import psycopg

    if isinstance(cause, psycopg.errors.DiskFull):
        return "has a full disk"
    if isinstance(cause, psycopg.errors.ReadOnlySqlTransaction):
        return "is read-only"
    return "is damaged" if isinstance(cause, _damage_errors()) else "is away"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
