"""The stores that the contract is held against."""

from dataclasses import replace
from secrets import token_hex

import pytest

from gangline.faults.s3_gateway import S3Gateway
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.keys import check_prefix
from gangline.storage.open import open_store

SECTION = "runs/p/c/r/gang"
SERVERS = [pytest.param(name, marks=pytest.mark.tools) for name in ("minio", "versitygw")]


def pytest_collection_modifyitems(items):
    """A request for each of so many keys is for who has time."""
    for item in items:
        if item.name == "test_pages_cover_2500_keys[gateway]":
            item.add_marker(pytest.mark.slow)
    too_long = "test_keys_of_900_bytes_work[section]"  # with the section's own part they are longer than a key may be
    items[:] = [item for item in items if item.name != too_long]


class Section:
    """A folder store by the keys of one of its sections; another writer's lie beside it."""

    def __init__(self, root):
        self._store = FolderStore(root)
        self._store.make_section(SECTION)
        self._store.put("runs/p/c/r/record.json", b"another's")
        self.url = f"{self._store.url}/{SECTION}"

    def __getattr__(self, name):
        call = getattr(self._store, name)
        return lambda key, *arguments, **options: call(self._inside(key), *arguments, **options)

    def head(self, key):
        found = self._store.head(self._inside(key))
        return found and self._outside(found)

    def list(self, prefix, after="", limit=1000):
        found = self._store.list(self._inside(prefix), self._inside(after), limit)
        return [self._outside(each) for each in found]

    def open_uploads(self, prefix=""):
        return [self._outside(each) for each in self._store.open_uploads(self._inside(prefix))]

    def abort_upload(self, upload):
        self._store.abort_upload(replace(upload, key=self._inside(upload.key)))

    @staticmethod
    def _inside(key):
        check_prefix(key)
        return f"{SECTION}/{key}"

    @staticmethod
    def _outside(found):
        return replace(found, key=found.key.removeprefix(f"{SECTION}/"))


@pytest.fixture(params=["folder", "section", "gateway", *SERVERS])
def store(request, tmp_path):
    if request.param == "folder":
        yield FolderStore(tmp_path / "store")
    elif request.param == "section":
        yield Section(tmp_path / "store")
    elif request.param == "gateway":
        with S3Gateway(FolderStore(tmp_path / "store")) as gateway:
            yield open_store(S3Gateway.url(gateway.port), credentials=gateway.credentials)
    else:
        yield request.getfixturevalue(f"{request.param}_server").store(f"test/{token_hex(8)}")
