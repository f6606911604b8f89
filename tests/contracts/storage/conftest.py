"""The stores that the contract is held against."""

import pytest

from gangline.storage.local import FolderStore


@pytest.fixture(params=["folder"])
def store(request, tmp_path):
    return FolderStore(tmp_path / "store")
