"""Multipart uploads of a `FolderStore`: a folder per open upload, with the key and the data so far."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from gangline.errors import StorageError
from gangline.storage.durable import make_folders, write_synced
from gangline.storage.failure import os_failures
from gangline.storage.multipart import check_previous_part
from gangline.storage.protocol import Etag, OpenUpload


class Publisher(Protocol):
    def publish(self, staged: Path, key: str) -> Etag: ...


class FolderUpload:
    def __init__(self, store: Publisher, uploads: Path, key: str) -> None:
        self.upload_id = token_hex(16)
        self._store = store
        self._key = key
        self._folder = uploads / self.upload_id
        self._etag: Etag | None = None
        self._last_size: int | None = None
        make_folders(self._folder)
        write_synced(self._folder / "key", key.encode())
        (self._folder / "data").touch()

    def part(self, data: bytes) -> None:
        with os_failures(f"write a part of {self._key}", self._folder):
            self._check_open()
            check_previous_part(self._last_size)
            with (self._folder / "data").open("ab") as file:
                file.write(data)
            self._last_size = len(data)

    def complete(self) -> Etag:
        if self._etag is None:
            with os_failures(f"complete {self._key}", self._folder):
                self._check_open()
                data = self._folder / "data"
                with data.open("rb") as file:
                    os.fsync(file.fileno())
                self._etag = self._store.publish(data, self._key)
                shutil.rmtree(self._folder)
        return self._etag

    def abort(self) -> None:
        with os_failures(f"abort the upload of {self._key}", self._folder):
            abort_folder_upload(self._folder.parent, self.upload_id)

    def _check_open(self) -> None:
        if not (self._folder / "data").exists():
            raise StorageError(f"upload {self.upload_id} of {self._key} was aborted or completed; begin a new one")


def find_uploads(uploads: Path, prefix: str) -> Sequence[OpenUpload]:
    """Open uploads whose key begins with `prefix`, by key."""
    if not uploads.is_dir():
        return []
    found = [upload for folder in uploads.iterdir() if (upload := _read(folder)) and upload.key.startswith(prefix)]
    return sorted(found, key=lambda upload: (upload.key, upload.started))


def abort_folder_upload(uploads: Path, upload_id: str) -> None:
    """Forget an upload and its parts; one that is gone is fine."""
    folder = uploads / Path(upload_id).name
    if folder.is_dir():
        shutil.rmtree(folder)


def _read(folder: Path) -> OpenUpload | None:
    try:
        return OpenUpload((folder / "key").read_text(), folder.name, (folder / "key").stat().st_mtime)
    except FileNotFoundError:  # just completed, or its writer was killed before the key was written
        return None
