"""The state database through SQLAlchemy: transactions that are durable when they return, and plain rows.

Statements are written once, with `?` for values, in the SQL that SQLite and PostgreSQL share; `sqlite` and `postgres`
say where these two differ.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gangline.errors import GanglineError, IntegrityError, StorageError
from gangline.serve.database import schema
from gangline.serve.database.types import DatabaseProblem

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

T = TypeVar("T")
Row = Sequence[Any]
IS_FULL, IS_READ_ONLY, IS_DAMAGED = "has a full disk", "is read-only", "is damaged"
ECHO_LETTERS = 300
"""Most letters of a driver's message that are repeated."""


class DatabaseSession:
    """One transaction. Locks and numbers are SQLite's here, whose writers are alone."""

    for_update = ""
    """Ends a SELECT whose rows this transaction will change, so that no other changes them meanwhile."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def rows(self, sql: str, *values: object) -> Sequence[Row]:
        """All rows of a SELECT, or of a statement with RETURNING."""
        return self._connection.exec_driver_sql(self.marked(sql), values).fetchall()

    def execute(self, sql: str, *values: object) -> int:
        """How many rows it met."""
        return self._connection.exec_driver_sql(self.marked(sql), values).rowcount

    def next_number(self, name: str) -> int:
        """The next number of that name; some may be left out."""
        return int(self.rows("UPDATE meta SET value = value + 1 WHERE name = ? RETURNING value", name)[0][0])

    def lock(self, what: str) -> None:
        """Hold the lock named `what` until the transaction ends."""

    def marked(self, sql: str) -> str:
        """The statement, with the driver's own mark for a value."""
        return sql


class DatabaseEngine:
    """A database behind a pool of connections; thread-safe.

    Raises StorageError where the database is away, IntegrityError where it is damaged.
    """

    session: ClassVar[type[DatabaseSession]] = DatabaseSession
    when_failed: ClassVar[str]
    """What to look at if it fails."""
    when_damaged: ClassVar[str]
    """What works if it is damaged."""

    def __init__(self, pool: "Engine", *, name: str, reading: dict[str, Any]) -> None:
        """Take over `pool`; messages call the database `name`, `reading` has the options of a connection that changes
        nothing."""
        self._pool, self._name = pool, name
        self._readers = pool.execution_options(**reading)

    def problem_of(self, cause: BaseException | None) -> str:
        """What hinders a write, by the driver's error; see `DatabaseProblem`."""
        raise NotImplementedError

    def write(self, work: Callable[[DatabaseSession], T]) -> T:
        """Run `work` in one transaction; durable when it returns, undone when it raises."""
        with self.translated_errors(), self._pool.begin() as connection:
            return work(self.session(connection))

    def read(self, work: Callable[[DatabaseSession], T]) -> T:
        """Run `work`, which changes nothing, on one state of the database."""
        with self.translated_errors(), self._readers.begin() as connection:
            return work(self.session(connection))

    def check(self) -> DatabaseProblem | None:
        """What is wrong with it (full, away, damaged, of another version); None: a delivery would be kept.

        A test commit shows it, and for SQLite a file next to the database.
        """
        try:
            return schema.version_problem(self.write(schema.commit_probe))
        except GanglineError as error:
            return DatabaseProblem(self.problem_of(error.__cause__), str(error))

    def close(self) -> None:
        self._pool.dispose()

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise errors of the driver, the pool and files as `errors` of gangline."""
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        try:
            yield
        except (OSError, SQLAlchemyError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            said = " ".join(str(cause).split())[:ECHO_LETTERS]
            if self.problem_of(cause) == IS_DAMAGED:
                raise IntegrityError(f"{self._name} is damaged: {said}; {self.when_damaged}") from cause
            raise StorageError(f"{self._name} failed: {said}; {self.when_failed}") from cause


def placeholders(values: Sequence[object]) -> str:
    """A `?` for each, for an IN."""
    return ", ".join("?" * len(values))
