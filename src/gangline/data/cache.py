"""Shards on the disk of a node, by digest: fetched once for all processes, verified, within a number of bytes.

A file has its name only after its digest was right. Its time of change is set to one that follows from the digest, its
time of access to the last use: a later write into it is seen by the next open. Readers hold a shared lock on a file,
which the kernel frees with their process; an eviction takes only files without such a lock. The folder is trusted:
processes that may write it decide what is read from it (decision 98).
"""

import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from gangline.errors import IntegrityError
from gangline.spec.dataset import DatasetShard

Fetch = Callable[[DatasetShard], Iterator[bytes]]
Tell = Callable[..., object]
"""Called with the name of an event and its fields."""
SHARE_OF_DISK = 0.8
"""Part of a disk that may be in use, by all its users, where the site names no number of bytes."""
LOCK_SECONDS = 600.0
"""Longest wait for another process that fetches the same shard."""
_NAME = re.compile(r"([0-9a-f]{64})(\.part)?")
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})
_HASHED_BYTES = 1 << 20


@dataclass(kw_only=True, slots=True)
class CacheUse:
    """Shards that were opened since the last event, and the work of fetching some of them."""

    bytes: int = 0
    """Fetched from the store or source."""
    seconds: float = 0.0
    fetched: int = 0
    cached: int = 0
    """Opened without fetching."""


class ShardCache:
    """A folder of shards, for one thread of each of the processes that use it."""

    def __init__(self, folder: Path, most_bytes: float | None, fetch: Fetch, *, tell: Tell | None = None) -> None:
        """
        Args:
            folder: Created when it is needed.
            most_bytes: None: as many as leave a fifth of the disk free.
            fetch: Bytes of a shard from where it lies, in pieces.
            tell: Called with `cache`, once, if the folder cannot be used, and with `shards` for what was read.
        """
        self._folder = folder
        self._most_bytes = most_bytes
        self._fetch = fetch
        self._tell = tell
        self._held: dict[str, tuple[int, Path]] = {}
        """Digest -> descriptor that holds it, and the path that opens it."""
        self._is_read_through = False
        self._has_told = False
        self.use = CacheUse()

    def file(self, shard: DatasetShard) -> Path:
        """Path of the whole, verified shard; it stays until a `hold` that does not name it.

        Raises:
            StorageError: The store or source failed.
            IntegrityError: Its bytes have another digest, the second time, too.
        """
        if shard.sha256 not in self._held:
            found = self._open(shard)
            if found is None:
                found = self._fetched(shard)
            else:
                self.use.cached += 1
            self._held[shard.sha256] = found
        return self._held[shard.sha256][1]

    def hold(self, shards: Collection[DatasetShard]) -> None:
        """Let go of all open shards but these; what is not open yet is not fetched by this."""
        kept = {shard.sha256 for shard in shards}
        for digest in [each for each in self._held if each not in kept]:
            os.close(self._held.pop(digest)[0])
        if self._tell and (self.use.fetched or self.use.cached):
            use, self.use = self.use, CacheUse()
            self._tell("shards", bytes=use.bytes, seconds=use.seconds, cached=use.cached, fetched=use.fetched)

    def close(self) -> None:
        """Let go of all shards."""
        self.hold(())

    def verify(self) -> tuple[int, list[str]]:
        """Hash all files and delete those with another digest; the number of files, the digests of the deleted."""
        files = [path for path, _ in self._entries() if not path.suffix]
        deleted = []
        for path in files:
            with suppress(FileNotFoundError):
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if _digest(handle) != path.name:
                        path.unlink()
                        deleted.append(path.name)
                finally:
                    os.close(handle)
        return len(files), deleted

    def _open(self, shard: DatasetShard) -> tuple[int, Path] | None:
        """A held file of the folder; None: it is not there, or is deleted because it is not the shard."""
        path = self._folder / shard.sha256
        for _ in range(100):
            try:
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                return None
            flock(handle, LOCK_SH)
            status = os.fstat(handle)
            if not _is_at(path, status):  # evicted, or replaced, between the two
                os.close(handle)
                continue
            if status.st_size == shard.size_bytes and (
                status.st_mtime_ns == _stamp(shard.sha256) or _digest(handle) == shard.sha256
            ):
                with suppress(OSError):  # of another owner, or read-only: it only counts as used earlier
                    os.utime(handle, ns=(time.time_ns(), _stamp(shard.sha256)))
                return handle, path
            os.close(handle)
            with suppress(OSError):
                path.unlink()
            return None
        return None

    def _fetched(self, shard: DatasetShard) -> tuple[int, Path]:
        """The shard in the folder, by this process or by another that was first; in memory where that fails."""
        if not self._is_read_through:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                with FileLock(self._folder / f"{shard.sha256[:2]}.lock", timeout=LOCK_SECONDS):
                    if (found := self._open(shard)) is not None:
                        self.use.cached += 1
                        return found
                    if (part := self._reserve(shard)) is not None:
                        return self._downloaded(shard, part)
                self._tell_once(f"wanted {shard.size_bytes} bytes more, and all that it has is in use or not its own")
            except Timeout:
                self._tell_once(f"another process fetches {shard.path} for {LOCK_SECONDS:.0f} s")
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._is_read_through = error.errno not in (errno.ENOSPC, errno.EDQUOT)
                self._tell_once(error.strerror or str(error))
        handle = os.memfd_create(shard.sha256)
        try:
            self._write(shard, handle)
        except BaseException:
            os.close(handle)
            raise
        return handle, Path(f"/proc/self/fd/{handle}")

    def _tell_once(self, reason: str) -> None:
        if self._tell and not self._has_told:
            self._has_told = True
            self._tell("cache", folder=str(self._folder), reason=f"read without it: {reason}")

    def _reserve(self, shard: DatasetShard) -> int | None:
        """Evict what was used least recently until the shard fits, and open its `.part`, which counts from now on.

        One process at a time measures and reserves. None: it does not fit, for others hold the rest.
        """
        with FileLock(self._folder / "room.lock", timeout=LOCK_SECONDS, poll_interval=0.005):
            part = self._folder / f"{shard.sha256}.part"
            with suppress(FileNotFoundError):
                part.unlink()  # of a process that was killed
            entries = sorted(self._entries(), key=lambda entry: entry[1].st_atime_ns)
            total = sum(facts.st_size for _, facts in entries)
            room = self._most_bytes
            if room is None:
                disk = shutil.disk_usage(self._folder)
                room = total + SHARE_OF_DISK * disk.total - disk.used
            for path, facts in entries:
                if total + shard.size_bytes > room and _evict(path):
                    total -= facts.st_size
            if total + shard.size_bytes > room:
                return None
            handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
            flock(handle, LOCK_SH)
            os.truncate(handle, shard.size_bytes)
            return handle

    def _downloaded(self, shard: DatasetShard, handle: int) -> tuple[int, Path]:
        """Write and name the shard; it is held from its first byte."""
        part, path = self._folder / f"{shard.sha256}.part", self._folder / shard.sha256
        try:
            self._write(shard, handle)
            os.fsync(handle)
            os.utime(handle, ns=(time.time_ns(), _stamp(shard.sha256)))
            part.rename(path)
        except BaseException:
            os.close(handle)
            with suppress(OSError):
                part.unlink()
            raise
        return handle, path

    def _write(self, shard: DatasetShard, handle: int) -> None:
        """Write the verified bytes of the shard; where they are wrong, once more."""
        began = time.monotonic()
        for _ in range(2):
            os.lseek(handle, 0, os.SEEK_SET)
            found, size = sha256(), 0
            for block in self._fetch(shard):
                size += len(block)
                if size > shard.size_bytes:
                    break
                found.update(block)
                with os.fdopen(handle, "wb", closefd=False) as file:
                    file.write(block)
            self.use.bytes += size
            if size == shard.size_bytes and found.hexdigest() == shard.sha256:
                self.use.fetched += 1
                self.use.seconds += time.monotonic() - began
                return
        raise IntegrityError(
            f"shard {shard.path} of {shard.source or 'the store'}: wanted {shard.size_bytes} bytes of digest"
            f" {shard.sha256}, found twice {size} of {found.hexdigest()}; restore it, or add the data set again"
        )

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Shards of the folder, and those that are being fetched, with their facts."""
        with suppress(FileNotFoundError), os.scandir(self._folder) as scandir:
            for entry in scandir:
                with suppress(FileNotFoundError):
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        yield Path(entry.path), entry.stat(follow_symlinks=False)


def _evict(path: Path) -> bool:
    """Delete a file that is not held; False: it is held, or gone."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flock(handle, LOCK_EX | LOCK_NB)
            path.unlink()
            return True
        finally:
            os.close(handle)
    return False


def _is_at(path: Path, facts: os.stat_result) -> bool:
    """Whether the open file with these facts is still the one at `path`."""
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (facts.st_dev, facts.st_ino)


def _stamp(digest: str) -> int:
    """Time of change of the verified file, in nanoseconds: a whole second of the years 1980 to 1999."""
    return (315_532_800 + int(digest[:12], 16) % 630_000_000) * 10**9


def _digest(handle: int) -> str:
    found = sha256()
    os.lseek(handle, 0, os.SEEK_SET)
    while block := os.read(handle, _HASHED_BYTES):
        found.update(block)
    return found.hexdigest()
