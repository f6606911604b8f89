"""Multipart uploads of a `FolderStore`: the data so far is in the file `<id>`, the key in `<id>.key`."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from gangline.errors import StorageError
from gangline.storage.folder.durable_files import write_synced
from gangline.storage.folder.safe_paths import open_plain
from gangline.storage.objects.errors import os_failures
from gangline.storage.objects.multipart import check_previous_part
from gangline.storage.objects.protocol import Etag, OpenUpload

_KEY = ".key"


class Publisher(Protocol):
    """The part of a folder store that an upload needs."""

    def publish(self, staged: Path, key: str) -> Etag:
        """Move the file `staged` to become the object `key`."""
        ...


class FolderUpload:
    """One upload to a folder store: parts are appended to a hidden file, which becomes the object at the end."""

    def __init__(self, store: Publisher, uploads: Callable[[], AbstractContextManager[Path]], key: str) -> None:
        """`uploads` gives the folder of uploads for the time of a call."""
        self.upload_id = token_hex(16)
        self._store = store
        self._key = key
        self._uploads = uploads
        self._size = 0
        self._last_size: int | None = None
        self._etag: Etag | None = None
        with uploads() as folder:
            write_synced(folder / f"{self.upload_id}{_KEY}", key.encode())
            (folder / self.upload_id).touch()

    def part(self, data: bytes | memoryview) -> None:
        with self._at("write a part of") as path:
            check_previous_part(self._last_size)
            with os.fdopen(open_plain(path, os.O_RDWR), "r+b") as file:
                file.truncate(self._size)  # bytes of a part that failed and is sent again
                file.seek(self._size)
                file.write(data)
            self._size += len(data)
            self._last_size = len(data)

    def complete(self) -> Etag:
        if self._etag is None:
            with self._at("complete") as path:
                with os.fdopen(open_plain(path, os.O_RDWR), "r+b") as file:
                    os.fsync(file.fileno())
                self._etag = self._store.publish(path, self._key)
                path.with_suffix(_KEY).unlink(missing_ok=True)
        return self._etag

    def abort(self) -> None:
        with self._uploads() as folder, os_failures(f"abort the upload of {self._key}", folder):
            abort_folder_upload(folder, self.upload_id)

    @contextmanager
    def _at(self, action: str) -> Iterator[Path]:
        """The data so far, of an upload that is still open."""
        with self._uploads() as folder, os_failures(f"{action} {self._key}", folder):
            path = folder / self.upload_id
            if not path.exists():
                raise StorageError(f"upload {self.upload_id} of {self._key} was aborted or completed; begin a new one")
            yield path


def find_uploads(uploads: Path, prefix: str) -> Iterator[OpenUpload]:
    """Open uploads whose key begins with `prefix`."""
    for path in uploads.glob("*" + _KEY):
        if (upload := _read(path)) and upload.key.startswith(prefix):
            yield upload


def abort_folder_upload(uploads: Path, upload_id: str) -> None:
    """Delete an upload and its parts; a missing one is no error."""
    data = uploads / Path(upload_id).name
    data.unlink(missing_ok=True)
    data.with_suffix(_KEY).unlink(missing_ok=True)


def _read(path: Path) -> OpenUpload | None:
    try:
        with os.fdopen(open_plain(path), encoding="utf-8", errors="replace") as file:
            return OpenUpload(file.read(), path.stem, os.fstat(file.fileno()).st_mtime)
    except FileNotFoundError:  # just completed or aborted
        return None
