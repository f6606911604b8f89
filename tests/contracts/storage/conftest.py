"""The stores that the contract is held against."""

from secrets import token_hex

import pytest

from gangline.storage.local import FolderStore

SERVERS = [pytest.param(name, marks=pytest.mark.tools) for name in ("minio", "versitygw")]


@pytest.fixture(params=["folder", *SERVERS])
def store(request, tmp_path):
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    return request.getfixturevalue(f"{request.param}_server").store(f"test/{token_hex(8)}")
