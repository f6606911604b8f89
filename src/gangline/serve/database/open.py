"""Opens the state database that a site names."""

from importlib import import_module
from pathlib import Path

from gangline.errors import ConfigError
from gangline.serve.database.deliveries import SqlDeliveries
from gangline.serve.database.engine import DatabaseEngine
from gangline.serve.database.orders import SqlOrders
from gangline.serve.database.protocol import Deliveries, OrderQueue, RunIndex, Tokens
from gangline.serve.database.runs import SqlRuns
from gangline.serve.database.tokens import SqlTokens
from gangline.serve.database.types import DatabaseProblem


class OpenDatabase:
    """`serve.database.protocol.Database` over an engine."""

    def __init__(self, engine: DatabaseEngine, *, restored: str | None = None) -> None:
        self.deliveries: Deliveries = SqlDeliveries(engine)
        self.orders: OrderQueue = SqlOrders(engine)
        self.runs: RunIndex = SqlRuns(engine)
        self.tokens: Tokens = SqlTokens(engine)
        self.restored = restored
        """What was damaged when it was opened, what was kept and what comes again: one sentence for the log."""
        self._engine = engine

    def check(self) -> DatabaseProblem | None:
        return self._engine.check()

    def close(self) -> None:
        self._engine.close()


def open_database(url_or_path: str) -> OpenDatabase:
    """The database of a path (SQLite, made where there is none) or of a `postgresql://` URL.

    A damaged SQLite file is put aside, and what is whole of it kept: see `restored`.

    Raises:
        ConfigError: Another kind of URL, a database that a newer gangline made, or PostgreSQL without psycopg.
        StorageError: It cannot be opened.
    """
    if url_or_path.startswith(("postgresql://", "postgres://")):
        from gangline.serve.database.postgres import PostgresEngine

        _require_psycopg()
        return OpenDatabase(PostgresEngine(url_or_path))
    scheme, colon, _ = url_or_path.partition("://")
    if colon:
        raise ConfigError(f"serve.database: wanted a path or a postgresql:// URL, found {scheme[:20]}://")
    from gangline.serve.database.sqlite import SqliteEngine

    engine = SqliteEngine(Path(url_or_path).expanduser().absolute())
    return OpenDatabase(engine, restored=engine.restored)


def _require_psycopg() -> None:
    try:
        import_module("psycopg")
    except ImportError as error:
        raise ConfigError(f"PostgreSQL needs psycopg, {error}; pip install 'gangline[postgres]'") from error
