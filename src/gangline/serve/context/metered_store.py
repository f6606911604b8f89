"""An object store that counts and times every call for the telemetry, and changes nothing else."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import TypeVar

from gangline.errors import StorageError
from gangline.serve.context.telemetry import StoreOutcome, Telemetry
from gangline.storage.objects.protocol import Blob, Entry, Etag, ObjectStore, OpenUpload, Upload

T = TypeVar("T")


class MeteredStore:
    """Implements `ObjectStore` around another."""

    def __init__(self, store: ObjectStore, telemetry: Telemetry) -> None:
        self._store, self._telemetry = store, telemetry
        self.url = store.url

    def get(self, key: str, start: int = 0, size: int | None = None) -> Blob | None:
        return self._measured("get", lambda: self._store.get(key, start, size))

    def head(self, key: str) -> Entry | None:
        return self._measured("head", lambda: self._store.head(key))

    def put(self, key: str, data: bytes) -> Etag:
        return self._measured("put", lambda: self._store.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> Etag | None:
        return self._measured("put_if_absent", lambda: self._store.put_if_absent(key, data), loses=True)

    def compare_and_set(self, key: str, data: bytes, expected: Etag) -> Etag | None:
        return self._measured("compare_and_set", lambda: self._store.compare_and_set(key, data, expected), loses=True)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Entry]:
        return self._measured("list", lambda: self._store.list(prefix, after, limit))

    def delete(self, key: str) -> None:
        self._measured("delete", lambda: self._store.delete(key))

    def upload(self, key: str) -> AbstractContextManager[Upload]:
        return self._measured("upload", lambda: self._store.upload(key))

    def open_uploads(self, prefix: str = "") -> Sequence[OpenUpload]:
        return self._measured("list", lambda: self._store.open_uploads(prefix))

    def abort_upload(self, upload: OpenUpload) -> None:
        self._measured("upload", lambda: self._store.abort_upload(upload))

    def presign(self, key: str, seconds: float) -> str:
        return self._store.presign(key, seconds)

    def _measured(self, operation: str, call: Callable[[], T], *, loses: bool = False) -> T:
        """Count `call`; None: another writer was first."""
        began = monotonic()
        try:
            answer = call()
        except StorageError:
            self._telemetry.store_request(operation, "failed", monotonic() - began)
            raise
        outcome: StoreOutcome = "conflict" if loses and answer is None else "ok"
        self._telemetry.store_request(operation, outcome, monotonic() - began)
        return answer
