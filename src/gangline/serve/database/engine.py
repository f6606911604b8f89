"""Interface of a database engine: transactions that are durable when they return, and plain rows.

Statements are written once, with `?` for values, in the SQL that SQLite and PostgreSQL share.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from gangline.serve.database.types import DatabaseProblem

T = TypeVar("T")
Row = tuple[Any, ...]


class DatabaseSession(Protocol):
    """Inside one transaction."""

    for_update: str
    """Ends a SELECT whose rows this transaction will change, so that no other changes them meanwhile."""

    def rows(self, sql: str, *values: object) -> list[Row]:
        """All rows of a SELECT, or of a statement with RETURNING."""
        ...

    def execute(self, sql: str, *values: object) -> int:
        """How many rows it met."""
        ...

    def next_number(self, name: str) -> int:
        """The next number of that name; some may be left out."""
        ...

    def lock(self, what: str) -> None:
        """Hold the lock named `what` until the transaction ends."""
        ...


class DatabaseEngine(Protocol):
    """Raises StorageError where the database is away, IntegrityError where it is damaged."""

    def write(self, work: Callable[[DatabaseSession], T]) -> T:
        """Run `work` in one transaction; durable when it returns, undone when it raises."""
        ...

    def read(self, work: Callable[[DatabaseSession], T]) -> T:
        """Run `work`, which changes nothing, on one state of the database."""
        ...

    def check(self) -> DatabaseProblem | None:
        """As `serve.database.protocol.Database.check`."""
        ...

    def close(self) -> None: ...


@contextmanager
def closing_on_error(engine: DatabaseEngine) -> Iterator[None]:
    """An engine that could not be opened leaves no connection behind."""
    try:
        yield
    except BaseException:
        engine.close()
        raise
