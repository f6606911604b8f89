"""Opens the state database that a site names. Records stay the truth: lost rows of runs come from them again."""

from pathlib import Path

from gangline.errors import ConfigError, NotInstalledError
from gangline.serve.database.deliveries import Deliveries
from gangline.serve.database.engine import DatabaseEngine
from gangline.serve.database.orders import OrderQueue
from gangline.serve.database.runs import RunIndex
from gangline.serve.database.tokens import Tokens


class Database:
    """The tables of one engine; the caller closes it. Every call is one transaction, durable when it returns."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self.deliveries, self.orders = Deliveries(engine), OrderQueue(engine)
        self.runs, self.tokens = RunIndex(engine), Tokens(engine)
        self.check, self.close = engine.check, engine.close


def open_database(url_or_path: str) -> Database:
    """The database of a path (SQLite, made where there is none) or of a `postgresql://` URL.

    Raises:
        ConfigError: Another kind of URL, a database that a newer gangline made, or a package is missing.
        IntegrityError: Its file is damaged.
        StorageError: It cannot be opened.
    """
    scheme, colon, _ = url_or_path.partition("://")
    if colon and scheme not in ("postgresql", "postgres"):
        raise ConfigError(f"serve.database: wanted a path or a postgresql:// URL, found {scheme[:20]}://")
    try:
        if colon:
            from gangline.serve.database.postgres import PostgresEngine

            return Database(PostgresEngine(url_or_path))
        from gangline.serve.database.sqlite import SqliteEngine
    except ImportError as error:
        extras = "serve,postgres" if colon else "serve"
        raise NotInstalledError(f"the service's database: {error}; pip install 'gangline[{extras}]'") from error
    return Database(SqliteEngine(Path(url_or_path).expanduser().absolute()))
