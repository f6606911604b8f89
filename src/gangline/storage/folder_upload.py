"""Multipart uploads of a `FolderStore`: beside the data so far, `<id>`, stands `<id>.key`, from first to last."""

import os
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from gangline.errors import StorageError
from gangline.storage.durable import write_synced
from gangline.storage.failure import os_failures
from gangline.storage.multipart import check_previous_part
from gangline.storage.protocol import Etag, OpenUpload

_KEY = ".key"


class Publisher(Protocol):
    def publish(self, staged: Path, key: str) -> Etag: ...


class FolderUpload:
    def __init__(self, store: Publisher, uploads: Path, key: str) -> None:
        self.upload_id = token_hex(16)
        self._store = store
        self._key = key
        self._data = uploads / self.upload_id
        self._size = 0
        self._last_size: int | None = None
        self._etag: Etag | None = None
        write_synced(self._data.with_suffix(_KEY), key.encode())
        self._data.touch()

    def part(self, data: bytes | memoryview) -> None:
        with os_failures(f"write a part of {self._key}", self._data.parent):
            self._check_open()
            check_previous_part(self._last_size)
            with self._data.open("r+b") as file:
                file.truncate(self._size)  # half a part stands behind that, where one failed and is given again
                file.seek(self._size)
                file.write(data)
            self._size += len(data)
            self._last_size = len(data)

    def complete(self) -> Etag:
        if self._etag is None:
            with os_failures(f"complete {self._key}", self._data.parent):
                self._check_open()
                with self._data.open("r+b") as file:
                    os.fsync(file.fileno())
                self._etag = self._store.publish(self._data, self._key)
                self._data.with_suffix(_KEY).unlink(missing_ok=True)
        return self._etag

    def abort(self) -> None:
        with os_failures(f"abort the upload of {self._key}", self._data.parent):
            abort_folder_upload(self._data.parent, self.upload_id)

    def _check_open(self) -> None:
        if not self._data.exists():
            raise StorageError(f"upload {self.upload_id} of {self._key} was aborted or completed; begin a new one")


def find_uploads(uploads: Path, prefix: str) -> Sequence[OpenUpload]:
    """Open uploads whose key begins with `prefix`, by key."""
    if not uploads.is_dir():
        return []
    found = [upload for path in uploads.glob("*" + _KEY) if (upload := _read(path)) and upload.key.startswith(prefix)]
    return sorted(found, key=lambda upload: (upload.key, upload.started))


def abort_folder_upload(uploads: Path, upload_id: str) -> None:
    """Forget an upload and its parts; one that is gone is fine."""
    data = uploads / Path(upload_id).name
    data.unlink(missing_ok=True)
    data.with_suffix(_KEY).unlink(missing_ok=True)


def _read(path: Path) -> OpenUpload | None:
    try:
        return OpenUpload(path.read_text(), path.stem, path.stat().st_mtime)
    except FileNotFoundError:  # just completed or aborted
        return None
