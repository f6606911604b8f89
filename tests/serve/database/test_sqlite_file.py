"""The SQLite file under a service that runs: what happens to the file itself."""

import pytest
from tests.contracts.database.rows import order

from gangline.errors import StorageError
from gangline.serve.database.open import open_database


def test_nothing_is_acknowledged_once_the_file_has_lost_its_name(tmp_path):
    path = tmp_path / "serve.db"
    database = open_database(str(path))
    try:
        database.orders.add(order("refs/heads/kept"), now=1.0)
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(StorageError, match="moved or deleted: put it back, or stop"):
            database.orders.add(order("refs/heads/lost"), now=1.0)
        assert "moved or deleted" in database.check().detail
        (tmp_path / "elsewhere").rename(path)
        database.orders.add(order("refs/heads/kept-too"), now=1.0)
        assert database.check() is None
    finally:
        database.close()
