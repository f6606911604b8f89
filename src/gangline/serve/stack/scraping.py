"""The token by which Prometheus reads the service's series: a reader of its own, made once, kept in a private file."""

from pathlib import Path
from time import time

from gangline.serve.accounts import digest_of, new_token
from gangline.serve.stack.home import Home, write_private
from gangline.serve.types import Principal


def database(home: Home) -> Path:
    return home.data("service") / "serve.db"


def scrape_token(home: Home) -> Path:
    """File of the token; the service's database knows its digest before the service first starts.

    Raises:
        StorageError: The database cannot be opened.
    """
    from gangline.serve.database.open import open_database

    path = home.folder / "prometheus-token"
    if not path.exists():
        token = new_token()
        opened = open_database(str(database(home)))
        try:
            reader = Principal(name="prometheus", roles={"*": "reader"})
            opened.tokens.add(digest=digest_of(token), principal=reader, expires=None, now=time())
        finally:
            opened.close()
        write_private(path, token)
    return path
