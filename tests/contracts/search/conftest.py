"""The stores that a search's journal is held against."""

from secrets import token_hex

import pytest

from gangline.storage.folder.store import FolderStore

SERVERS = [pytest.param(name, marks=pytest.mark.tools) for name in ("minio", "versitygw")]


@pytest.fixture(params=["folder", *SERVERS])
def store(request, tmp_path):
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    return request.getfixturevalue(f"{request.param}_server").store(f"test/{token_hex(8)}")


def pytest_collection_modifyitems(items):
    """A store with connections is opened by each process, not sent to it."""
    items[:] = [
        item for item in items if item.name not in [f"test_pickle_storage[{each.values[0]}]" for each in SERVERS]
    ]
