"""`FolderStore`: a store in a folder, for one machine or a shared file system.

An object is the plain file of its key, so people can open what the store holds. Writing never touches a visible file:
data is staged and synced, then renamed in one step, then the folder is synced. Version of an object is its
modification time, which every write sets later than the one it replaces, under a lock per key: A, then B, then A again
is seen. What is not an object lies in `.store~`, a name that no key can have. It marks the folder as a store, too:
who has seen it once takes its absence for a mount that is away, not for an empty store (docs/adr/0029). Prefixes may
be sections, with such a folder of their own (`layout`).

A multipart upload has the data so far in the file `<id>`, its key in `<id>.key`.
"""

import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from io import FileIO
from itertools import islice
from pathlib import Path
from secrets import token_hex

from gangline.errors import StorageError, UsageError
from gangline.storage.folder.durable_files import publish_at, stamp_after, sync_folder, write_synced
from gangline.storage.folder.layout import FolderLayout, Section, walk
from gangline.storage.folder.safe_paths import open_plain
from gangline.storage.objects.errors import os_failures
from gangline.storage.objects.keys import check_prefix, is_key
from gangline.storage.objects.multipart import check_previous_part, finishing
from gangline.storage.objects.protocol import Blob, Entry, Etag, OpenUpload, Upload

_LOST_WRITER_SECONDS = 24 * 3600


class FolderStore:
    """ObjectStore in a folder.

    Args:
        path: Made at the first write, with its parent if need be; a missing grandparent is refused, for it is more
            likely a mount that is away than a wish.
    """

    def __init__(self, path: Path | str) -> None:
        self._root = Path(path).expanduser().absolute()
        self._layout = FolderLayout(self._root)
        self._swept: set[str | None] = set()
        """Sections whose staged files were looked through; None: the store itself."""
        self.url = f"file:{self._root}"

    def get(self, key: str, start: int = 0, size: int | None = None) -> Blob | None:
        if start < 0 or (size is not None and size < 0):
            raise UsageError(f"a range starts at 0 or later and has 0 bytes or more, got start={start} size={size}")
        with self._failures("read", key):
            try:
                with self._layout.file(key) as path, os.fdopen(open_plain(path), "rb") as file:
                    status = os.fstat(file.fileno())
                    file.seek(start)
                    return Blob(file.read(-1 if size is None else size), _version(status), status.st_size)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._layout.demand_marker()
                return None

    def read_into(self, key: str, start: int, buffers: Sequence[memoryview]) -> tuple[int, int] | None:
        """Fill `buffers` from `start` on; (bytes read, bytes of the object), None if the key does not exist."""
        with self._failures("read", key):
            try:
                with self._layout.file(key) as path, FileIO(open_plain(path), "rb") as file:
                    file.seek(start)
                    return sum(_fill(file, buffer) for buffer in buffers), os.fstat(file.fileno()).st_size
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._layout.demand_marker()
                return None

    def head(self, key: str) -> Entry | None:
        with self._failures("look up", key):
            status = self._stat(key)
            if status is None:
                self._layout.demand_marker()
            return Entry(key, status.st_size, status.st_mtime) if status else None

    def put(self, key: str, data: bytes) -> Etag:
        with self._failures("write", key), self._staged(key, data) as staged:
            return self.publish(staged, key)

    def put_if_absent(self, key: str, data: bytes) -> Etag | None:
        with self._failures("write", key):
            if self._stat(key) is not None:
                return None
            with self._staged(key, data) as staged:
                stamp_after(staged, 0)
                version = _version(staged.stat())
                if publish_at(staged, partial(self._layout.file, key, make=True), replace=False):
                    return version
            if self._layout.path(key).is_dir():
                raise IsADirectoryError(errno.EISDIR, "Is a directory", key)
            return None

    def compare_and_set(self, key: str, data: bytes, expected: Etag) -> Etag | None:
        with self._failures("write", key):
            status = self._stat(key)
            if status is None or _version(status) != expected:
                self._layout.demand_marker()
                return None
            with self._staged(key, data) as staged:
                return self._publish_over(staged, key, expected)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Entry]:
        check_prefix(prefix)
        with self._failures("list", prefix or "all keys"):
            self._layout.demand_marker()
            keys = (each for each in walk(self._layout, prefix=prefix, after=after) if is_key(each[0]))
            return [Entry(key, stat.st_size, stat.st_mtime) for key, stat in islice(keys, limit)]

    def delete(self, key: str) -> None:
        with self._failures("delete", key):
            if self._stat(key) is None:
                self._layout.demand_marker()
                return
            with self._locked(key), suppress(FileNotFoundError), self._layout.file(key) as path:
                path.unlink(missing_ok=True)
                sync_folder(path.parent)
            self._layout.prune(key)

    def upload(self, key: str) -> AbstractContextManager[Upload]:
        self._layout.path(key)
        with self._failures("write", key):
            section = self._layout.section_of(key)
            return finishing(FolderUpload(self, partial(self._layout.hidden, section, "uploads"), key))

    def open_uploads(self, prefix: str = "") -> Sequence[OpenUpload]:
        check_prefix(prefix)
        with self._failures("list", "open uploads"):
            uploads: list[OpenUpload] = []
            for section in self._layout.sections_at(prefix):
                with self._layout.hidden(section, "uploads") as folder:
                    uploads += find_uploads(folder, prefix)
            return sorted(uploads, key=lambda upload: (upload.key, upload.started))

    def abort_upload(self, upload: OpenUpload) -> None:
        section = self._layout.section_of(upload.key)
        with self._failures("abort the upload of", upload.key), self._layout.hidden(section, "uploads") as folder:
            abort_folder_upload(folder, upload.upload_id)

    def presign(self, key: str, seconds: float) -> str:  # noqa: ARG002  a file stays readable for longer
        return self._layout.path(key).as_uri()

    def make_section(self, prefix: str) -> Section:
        """Let a process work below `prefix` that may write nothing else here. See `layout`."""
        with self._failures("write", prefix):
            return self._layout.make_section(prefix)

    def mount_point(self, key: str) -> Path:
        """The folder nearest to an object that no process of a section can replace: its section, or its own folder."""
        section = self._layout.section_of(key)
        return self._layout.path(key).parent if section is None else self._root / section

    def publish(self, staged: Path, key: str) -> Etag:
        """Give a synced file of this file system the name of `key`."""
        with self._failures("write", key), self._locked(key):
            return self._replace(staged, key, self._stat(key))

    def _publish_over(self, staged: Path, key: str, expected: Etag) -> Etag | None:
        with self._locked(key):
            status = self._stat(key)
            if status is None or _version(status) != expected:
                return None
            return self._replace(staged, key, status)

    def _replace(self, staged: Path, key: str, found: os.stat_result | None) -> Etag:
        stamp_after(staged, found.st_mtime_ns if found else 0)
        version = _version(staged.stat())
        publish_at(staged, partial(self._layout.file, key, make=True), replace=True)
        return version

    def _stat(self, key: str) -> os.stat_result | None:
        try:
            with self._layout.file(key) as path:
                status = path.lstat()
                return status if stat.S_ISREG(status.st_mode) else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    @contextmanager
    def _staged(self, key: str, data: bytes) -> Iterator[Path]:
        section = self._layout.section_of(key)
        with self._layout.hidden(section, "incoming") as folder:
            self._sweep(section, folder)
            staged = folder / token_hex(16)
            write_synced(staged, data)
            try:
                yield staged
            finally:
                staged.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Lock `key` against other threads and processes; released when the holder ends, also when it is killed."""
        stripe = hashlib.sha256(key.encode()).hexdigest()[:2]
        with (
            self._layout.hidden(self._layout.section_of(key), "locks") as folder,
            os.fdopen(open_plain(folder / stripe, os.O_WRONLY | os.O_CREAT), "ab") as lock,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _sweep(self, section: str | None, incoming: Path) -> None:
        """Once a process: remove staged files whose writer was killed."""
        if section in self._swept:
            return
        self._swept.add(section)
        for path in incoming.iterdir():
            try:
                if time.time() - path.lstat().st_mtime > _LOST_WRITER_SECONDS:
                    path.unlink()
            except FileNotFoundError:  # its writer is alive, and finished
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


_KEY = ".key"


class FolderUpload:
    """One upload to a folder store: parts are appended to a hidden file, which becomes the object at the end."""

    def __init__(self, store: FolderStore, uploads: Callable[[], AbstractContextManager[Path]], key: str) -> None:
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
