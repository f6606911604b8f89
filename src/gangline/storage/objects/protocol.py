"""The protocol of all object stores, its data types, and reads with a size limit."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gangline.errors import IntegrityError
from gangline.units import format_bytes

Etag = str
"""Opaque name of one version of one object."""


@dataclass(frozen=True, slots=True)
class Blob:
    """An object that was read."""

    data: bytes
    etag: Etag
    size_bytes: int
    """Size of the whole object, also when a range was read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a listing."""

    key: str
    size_bytes: int
    modified: float
    """Seconds since the epoch, by the store's clock."""


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload that was begun and neither completed nor aborted."""

    key: str
    upload_id: str
    started: float


class Upload(Protocol):
    """One multipart upload; nothing is visible before `complete`."""

    upload_id: str

    def part(self, data: bytes | memoryview) -> None:
        """Append the next part; parts but the last have at least 5 MiB."""
        ...

    def complete(self) -> Etag:
        """Make the object visible; a second call returns the same version."""
        ...

    def abort(self) -> None:
        """Delete the parts; a missing upload is no error."""
        ...


@runtime_checkable
class ObjectStore(Protocol):
    """Objects by key, with conditional writes; all methods raise StorageError where the store fails."""

    url: str
    """The URL that opens the store again, without credentials."""

    def get(self, key: str, start: int = 0, size: int | None = None) -> Blob | None:
        """Object, or `size` bytes from `start`; None if the key does not exist."""
        ...

    def head(self, key: str) -> Entry | None:
        """Size and time of an object; None if the key does not exist."""
        ...

    def put(self, key: str, data: bytes) -> Etag:
        """Write or overwrite; durable when it returns."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> Etag | None:
        """Write if the key does not exist; None: another writer was first."""
        ...

    def compare_and_set(self, key: str, data: bytes, expected: Etag) -> Etag | None:
        """Write if the object is still version `expected`; None: it is another one, or gone."""
        ...

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Entry]:
        """Entries below `prefix` with key > `after`, sorted by key, at most `limit`; other names are left out."""
        ...

    def delete(self, key: str) -> None:
        """Delete the object; a missing key is no error."""
        ...

    def upload(self, key: str) -> AbstractContextManager[Upload]:
        """Multipart upload; leaving the block by an exception aborts it, without one completes it."""
        ...

    def open_uploads(self, prefix: str = "") -> Sequence[OpenUpload]:
        """Open uploads of keys that begin with `prefix`; of very many, a part: call it again after aborting them."""
        ...

    def abort_upload(self, upload: OpenUpload) -> None:
        """Delete an upload and its parts; a missing one is no error."""
        ...

    def presign(self, key: str, seconds: float) -> str:
        """URL that reads the object for a while; `file:` URL for a folder."""
        ...


def list_all(store: ObjectStore, prefix: str, page: int = 1000) -> Iterator[Entry]:
    """Every entry below `prefix`, page by page."""
    after = ""
    while entries := store.list(prefix, after, page):
        yield from entries
        after = entries[-1].key


def get_bounded(store: ObjectStore, key: str, *, most_bytes: int) -> Blob | None:
    """The whole object, of at most `most_bytes`; None where there is none.

    Raises:
        IntegrityError: It is larger; no more than `most_bytes` of it were read.
    """
    blob = store.get(key, 0, most_bytes)
    if blob is not None and blob.size_bytes > most_bytes:
        raise IntegrityError(
            f"{key}: wanted at most {format_bytes(most_bytes)}, found {format_bytes(blob.size_bytes)}; not read"
        )
    return blob
