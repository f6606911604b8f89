"""The stores that the contract is held against."""

from secrets import token_hex

import pytest

from gangline.launch.faults.gateway import Gateway
from gangline.storage.local import FolderStore
from gangline.storage.open import open_store

SERVERS = [pytest.param(name, marks=pytest.mark.tools) for name in ("minio", "versitygw")]


def pytest_collection_modifyitems(items):
    """A request for each of so many keys is for who has time."""
    for item in items:
        if item.name == "test_pages_cover_2500_keys[gateway]":
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["folder", "gateway", *SERVERS])
def store(request, tmp_path):
    if request.param == "folder":
        yield FolderStore(tmp_path / "store")
    elif request.param == "gateway":
        with Gateway(FolderStore(tmp_path / "store")) as gateway:
            yield open_store(Gateway.url(gateway.port), credentials=gateway.credentials)
    else:
        yield request.getfixturevalue(f"{request.param}_server").store(f"test/{token_hex(8)}")
