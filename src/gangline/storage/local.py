"""`FolderStore`: a store in a folder, for one machine or a shared file system.

An object is the plain file of its key, so people can open what the store holds. Writing never touches a visible file:
data is staged and synced beside, then gets its name in one step, then the folder is synced. Version of an object is its
modification time, which every write sets later than the one it replaces, under a lock per key: A, then B, then A again
is seen. What is not an object lies in `.store~`, a name that no key can have. It marks the folder as a store, too:
who has seen it once takes its absence for a mount that is away, not for an empty store (docs/adr/0029).
"""

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from io import FileIO
from itertools import islice
from pathlib import Path
from secrets import token_hex

from gangline.errors import StorageError, UsageError
from gangline.storage.durable import make_folders, prune, publish, stamp_after, sync_folder, write_synced
from gangline.storage.failure import os_failures
from gangline.storage.folder_upload import FolderUpload, abort_folder_upload, find_uploads
from gangline.storage.keys import check_key, check_prefix
from gangline.storage.multipart import finishing
from gangline.storage.protocol import Blob, Entry, Etag, OpenUpload, Upload
from gangline.storage.walk import walk

HIDDEN = ".store~"
_LOST_WRITER_SECONDS = 24 * 3600


class FolderStore:
    """ObjectStore in a folder.

    Args:
        path: Made at the first write, with its parent if need be; a missing grandparent is refused, for it is more
            likely a mount that is away than a wish.
    """

    def __init__(self, path: Path | str) -> None:
        self._root = Path(path).expanduser().absolute()
        self._has_swept = False
        self._was_there = False
        """The marker was seen."""
        self.url = f"file:{self._root}"

    def get(self, key: str, start: int = 0, size: int | None = None) -> Blob | None:
        if start < 0 or (size is not None and size < 0):
            raise UsageError(f"a range starts at 0 or later and has 0 bytes or more, got start={start} size={size}")
        with self._failures("read", key):
            try:
                with self._path(key).open("rb") as file:
                    found = os.fstat(file.fileno())
                    file.seek(start)
                    return Blob(file.read(-1 if size is None else size), _version(found), found.st_size)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._demand_marker()
                return None

    def read_into(self, key: str, start: int, buffers: Sequence[memoryview]) -> tuple[int, int] | None:
        """Fill `buffers` from `start` on; (bytes read, bytes of the object), None where there is no such key."""
        with self._failures("read", key):
            try:
                with self._path(key).open("rb", buffering=0) as file:
                    file.seek(start)
                    return sum(_fill(file, each) for each in buffers), os.fstat(file.fileno()).st_size
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._demand_marker()
                return None

    def head(self, key: str) -> Entry | None:
        with self._failures("look up", key):
            found = self._stat(key)
            if found is None:
                self._demand_marker()
            return Entry(key, found.st_size, found.st_mtime) if found else None

    def put(self, key: str, data: bytes) -> Etag:
        with self._failures("write", key), self._staged(data) as staged:
            return self.publish(staged, key)

    def put_if_absent(self, key: str, data: bytes) -> Etag | None:
        with self._failures("write", key):
            if self._path(key).is_file():
                return None
            with self._staged(data) as staged:
                stamp_after(staged, 0)
                version = _version(staged.stat())
                if publish(staged, self._path(key), replace=False):
                    return version
            if self._path(key).is_dir():
                raise IsADirectoryError(errno.EISDIR, "Is a directory", key)
            return None

    def compare_and_set(self, key: str, data: bytes, expected: Etag) -> Etag | None:
        with self._failures("write", key):
            found = self._stat(key)
            if found is None or _version(found) != expected:
                self._demand_marker()
                return None
            with self._staged(data) as staged:
                return self._publish_over(staged, key, expected)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Entry]:
        check_prefix(prefix)
        with self._failures("list", prefix or "all keys"):
            self._demand_marker()
            found = islice(walk(self._root, prefix=prefix, after=after, hidden=HIDDEN), limit)
            return [Entry(key, stat.st_size, stat.st_mtime) for key, stat in found]

    def delete(self, key: str) -> None:
        with self._failures("delete", key):
            if self._stat(key) is None:
                self._demand_marker()
                return
            path = self._path(key)
            with self._locked(key):
                path.unlink(missing_ok=True)
                if path.parent.is_dir():
                    sync_folder(path.parent)
            prune(path.parent, self._root)

    def upload(self, key: str) -> AbstractContextManager[Upload]:
        self._path(key)
        with self._failures("write", key):
            return finishing(FolderUpload(self, self._made("uploads"), key))

    def open_uploads(self, prefix: str = "") -> Sequence[OpenUpload]:
        check_prefix(prefix)
        with self._failures("list", "open uploads"):
            return find_uploads(self._root / HIDDEN / "uploads", prefix)

    def abort_upload(self, upload: OpenUpload) -> None:
        with self._failures("abort the upload of", upload.key):
            abort_folder_upload(self._root / HIDDEN / "uploads", upload.upload_id)

    def presign(self, key: str, seconds: float) -> str:  # noqa: ARG002  a file stays readable for longer
        return self._path(key).as_uri()

    def publish(self, staged: Path, key: str) -> Etag:
        """Give a synced file of this file system the name of `key`."""
        with self._failures("write", key), self._locked(key):
            return self._replace(staged, key, self._stat(key))

    def _publish_over(self, staged: Path, key: str, expected: Etag) -> Etag | None:
        with self._locked(key):
            found = self._stat(key)
            if found is None or _version(found) != expected:
                return None
            return self._replace(staged, key, found)

    def _replace(self, staged: Path, key: str, found: os.stat_result | None) -> Etag:
        stamp_after(staged, found.st_mtime_ns if found else 0)
        version = _version(staged.stat())
        publish(staged, self._path(key), replace=True)
        return version

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _stat(self, key: str) -> os.stat_result | None:
        path = self._path(key)
        try:
            return path.stat() if path.is_file() else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    @contextmanager
    def _staged(self, data: bytes) -> Iterator[Path]:
        staged = self._made("incoming") / token_hex(16)
        self._sweep(staged.parent)
        write_synced(staged, data)
        try:
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Exclude other writers of `key`, threads and processes alike; ends with its holder, also by a kill."""
        stripe = hashlib.sha256(key.encode()).hexdigest()[:2]
        with (self._made("locks") / stripe).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _made(self, name: str) -> Path:
        folder = self._root / HIDDEN / name
        if not folder.is_dir():
            self._demand_marker()
            self._check_place()
            make_folders(folder)
        self._was_there = True
        return folder

    def _demand_marker(self) -> None:
        """Before saying that something is not there; raises StorageError where the store itself went away."""
        if (self._root / HIDDEN).is_dir():
            self._was_there = True
        elif self._was_there:
            raise StorageError(
                f"store {self._root}: it was here and is gone; mount what belongs there: it is taken up at once"
                " (where it was deleted on purpose, start this program anew)"
            )

    def _check_place(self) -> None:
        grandparent = self._root.parent.parent
        if not grandparent.is_dir():
            raise StorageError(
                f"store {self._root}: {grandparent} is not there; make it (or mount what belongs there), "
                "or choose another store.url"
            )

    def _sweep(self, incoming: Path) -> None:
        """Once a process: remove staged files whose writer was killed."""
        if self._has_swept:
            return
        self._has_swept = True
        for left in incoming.iterdir():
            try:
                if time.time() - left.stat().st_mtime > _LOST_WRITER_SECONDS:
                    left.unlink()
            except FileNotFoundError:  # its writer lives, and finished
                continue

    def _failures(self, action: str, key: str) -> AbstractContextManager[None]:
        return os_failures(f"{action} {key}", self._root)


def _version(found: os.stat_result) -> Etag:
    return f"{found.st_mtime_ns:x}-{found.st_size:x}"


def _fill(file: FileIO, buffer: memoryview) -> int:
    """Bytes read: fewer than `buffer` has only at the end of the file."""
    done = 0
    while done < len(buffer) and (size := file.readinto(buffer[done:])):
        done += size
    return done
