"""Files behind pointers: fetched from a remote once, verified by the digest of the pointer, kept as blobs by SHA-256.

An md5 says which file is wanted; plans and records name the SHA-256 that was computed when it was fetched first.
`pointers/<project>/<kind>/<digest>.json` keeps the two together and never changes, so that another file with the same
md5 is noticed.
"""

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

from gangline.data.pointers import MD5, Digest, Pointer, require_few
from gangline.errors import IntegrityError, StorageError
from gangline.sanitize import clean
from gangline.spec.config.problems import printable, refusal
from gangline.spec.data_source import DataFile
from gangline.storage.folder.safe_paths import kind_of, open_plain
from gangline.storage.objects.blobs import PREFIX
from gangline.storage.objects.growing_file import put_blocks
from gangline.storage.objects.paths import check_new_path
from gangline.storage.objects.protocol import ObjectStore, get_bounded
from gangline.units import format_bytes

POINTERS = "pointers/"
"""First segment of the keys that keep md5 and SHA-256 together."""
_MOST_LIST_BYTES = 64 << 20
"""Largest list of the files of a folder."""
_IN_MEMORY_BYTES = 8 << 20
_BLOCK_BYTES = 1 << 20
"""DVC before 3.0 replaced ends of lines in blocks of this size."""
_TEXT = bytes(range(32, 127)) + b"\n\r\t\f\b"
_TEXT_START_BYTES, _MOST_OTHER = 512, 0.30
"""A file is text for DVC where its first 512 bytes have no NUL, and at most 30 % that are not in `_TEXT`."""


class Remote(Protocol):
    """Files by path, as `data.sources` and folders have them."""

    def find(self, pattern: str) -> Sequence[Any]:
        """Files at `pattern`, none where there is none; raises StorageError where the remote does not answer."""
        ...

    def blocks(self, path: str) -> Iterator[bytes]:
        """Content of the file at `path`."""
        ...


@dataclass(frozen=True, slots=True)
class FolderRemote:
    """A folder of this machine as a remote, as `.git/lfs/objects` is one."""

    root: Path

    def find(self, pattern: str) -> Sequence[Path]:
        """The file at `pattern`, which is its path; raises StorageError for a link, folder or pipe in its place."""
        path = self.root / pattern
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return []
        if not stat.S_ISREG(mode):
            raise StorageError(f"wanted a file at {path}, found {kind_of(mode)}; put the file there")
        return [path]

    def blocks(self, path: str) -> Iterator[bytes]:
        """Content of the file at `path`."""
        try:
            with os.fdopen(open_plain(self.root / path), "rb") as file:
                yield from iter(lambda: file.read(_BLOCK_BYTES), b"")
        except OSError as error:
            raise StorageError(f"wanted to read {self.root / path}, found: {error.strerror}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteObjects:
    """Where one pointer's objects are."""

    remote: Remote
    folder: str
    """Path in the remote; empty: its top."""
    url: str
    """Address of the remote for messages."""

    def place_of(self, pointer: Pointer) -> str | None:
        """Path of the pointer's object in the remote; None: it has none."""
        return next((place for place in self.places(pointer) if self.remote.find(place)), None)

    def places(self, pointer: Pointer) -> Iterator[str]:
        """Paths at which remotes of the pointer's tool hold it, the likeliest first."""
        digest = pointer.digest + (".dir" if pointer.is_folder else "")
        short, named = f"{digest[:2]}/{digest[2:]}", f"files/md5/{digest[:2]}/{digest[2:]}"
        places = {"md5": (named, short), "md5-dos2unix": (short, named)}.get(
            pointer.kind, (f"{digest[:2]}/{digest[2:4]}/{digest}",)
        )
        return (f"{self.folder}/{place}".lstrip("/") for place in places)


@dataclass(kw_only=True)
class TrackedFiles:
    """Fetches the files behind pointers of one project."""

    store: ObjectStore
    project: str
    spool: Path
    """Folder for a file that is being fetched."""
    most_bytes: float
    """Most bytes of all files together, `limits.tracked_bytes`."""
    notify: Callable[[str], None] = lambda _: None
    """Called with a sentence before the first file is fetched."""
    num_fetched: int = 0
    """Files that were not in the store before."""
    _num_bytes: int = field(default=0, init=False)
    _num_objects: int = field(default=0, init=False)

    def files_of(self, pointer: Pointer, at: RemoteObjects) -> list[DataFile]:
        """The file of a pointer, or the files of its folder, as blobs of the store.

        Raises:
            StorageError: The remote does not answer, or has no such file.
            IntegrityError: A file is not that of its digest.
            ConfigError: There are too many files or bytes.
        """
        pointers = self._in_folder(pointer, at) if pointer.is_folder else [pointer]
        return [self._file(each, at) for each in pointers]

    def _in_folder(self, pointer: Pointer, at: RemoteObjects) -> list[Pointer]:
        key, size = self._blob(pointer, at, most_bytes=_MOST_LIST_BYTES)
        blob = get_bounded(self.store, key, most_bytes=size)
        if blob is None or PREFIX + hashlib.sha256(blob.data).hexdigest() != key:
            raise IntegrityError(f"store {self.store.url}: {key} is not the list of {pointer.path}; delete it")
        try:
            found = list(_listed(blob.data))
        except (ValueError, TypeError, KeyError, RecursionError, IntegrityError) as error:
            raise IntegrityError(
                f"{printable(pointer.path)}: wanted a list of files by md5 at {at.url}, found something else:"
                f" {clean(str(error), limit=200)}"
            ) from error
        require_few(pointer.path, len(found))
        single = replace(pointer, is_folder=False, size_bytes=None, num_files=None)
        return [replace(single, path=f"{pointer.path}/{path}", digest=digest) for path, digest in found]

    def _file(self, pointer: Pointer, at: RemoteObjects) -> DataFile:
        left = int(self.most_bytes - self._num_bytes)
        if (pointer.size_bytes or 0) > left:
            raise refusal(_too_large(pointer.path, self.most_bytes))
        key, size = self._blob(pointer, at, most_bytes=left)
        self._num_bytes += size
        return DataFile(path=pointer.path, key=key, size_bytes=size)

    def _blob(self, pointer: Pointer, at: RemoteObjects, *, most_bytes: int) -> tuple[str, int]:
        """Key and size of the blob of one object, fetched unless the store has it."""
        key = f"{POINTERS}{self.project}/{pointer.kind}/{pointer.digest}{'.dir' if pointer.is_folder else ''}.json"
        known = _known(self.store, key)
        if known is not None:
            entry = self.store.head(PREFIX + known[0])
            if entry is not None and entry.size_bytes == known[1]:
                return PREFIX + known[0], known[1]
        if self._num_objects == 0:
            self.notify(f"fetching {pointer.path} and what else is not in the store from {at.url}")
        self._num_objects += 1
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(self.spool)) as file:
            found = _fetch(pointer, at, file, most_bytes=most_bytes)
            self.store.put_if_absent(key, json.dumps({"sha256": found[0], "size_bytes": found[1]}).encode())
            first = _known(self.store, key)
            if first != found:
                wanted = first[0] if first else "no other file"
                raise IntegrityError(
                    f"{pointer.path}: wanted the file of SHA-256 {wanted}, which had {pointer.shown} when it was"
                    f" fetched first, found {found[0]} at {at.url}: two files with one md5; restore the first"
                )
            file.seek(0)
            put_blocks(self.store, PREFIX + found[0], iter(lambda: file.read(_BLOCK_BYTES), b""))
        self.num_fetched += not pointer.is_folder
        return PREFIX + found[0], found[1]


def _listed(data: bytes) -> Iterator[tuple[str, str]]:
    """(path, md5) of each file of a list; a list that its md5 pins may still be made by anyone who may push."""
    plain = json.loads(data)
    if not isinstance(plain, list):
        raise TypeError(f"{type(plain).__name__} instead of a list")
    seen: set[str] = set()
    for each in plain:
        path, digest = each["relpath"], each["md5"]
        if not isinstance(path, str) or not isinstance(digest, str) or not MD5.fullmatch(digest):
            raise ValueError(f"{str(digest)[:60]} as the md5 of {path}")
        check_new_path(path)
        if path in seen:
            raise ValueError(f"{path[:200]} twice")
        seen.add(path)
        yield path, digest
    for path in seen:
        if (
            above := next((str(parent) for parent in PurePosixPath(path).parents if str(parent) in seen), None)
        ) is not None:
            raise ValueError(f"{above[:200]} as a file and as a folder")


def _known(store: ObjectStore, key: str) -> tuple[str, int] | None:
    blob = get_bounded(store, key, most_bytes=1000)
    if blob is None:
        return None
    try:
        plain = json.loads(blob.data)
        return str(plain["sha256"]), int(plain["size_bytes"])
    except (ValueError, TypeError, KeyError) as error:
        raise IntegrityError(f"store {store.url}: {key} is no digest with a size; delete it") from error


def _fetch(pointer: Pointer, at: RemoteObjects, file: IO[bytes], *, most_bytes: int) -> tuple[str, int]:
    """Write the object of a pointer to `file`; its SHA-256 and size."""
    if (place := at.place_of(pointer)) is None:
        push = "git lfs fetch --all" if pointer.tool == "Git LFS" else "dvc push"
        raise StorageError(
            f"{pointer.path}: wanted {pointer.shown} of {at.url}, found nothing at {' or '.join(at.places(pointer))};"
            f" {push} puts it there"
        )
    wanted, sha256, size = PointerDigest(pointer.kind), hashlib.sha256(), 0
    for block in at.remote.blocks(place):
        size += len(block)
        if size > most_bytes:
            raise refusal(_too_large(pointer.path, most_bytes))
        sha256.update(block)
        wanted.update(block)
        file.write(block)
    wanted_bytes = size if pointer.is_folder or pointer.size_bytes is None else pointer.size_bytes
    if (found := wanted.hexdigest()) != pointer.digest or size != wanted_bytes:
        raise IntegrityError(
            f"{pointer.path}: wanted {pointer.shown} of {wanted_bytes} bytes, found {pointer.kind.partition('-')[0]}"
            f" {found} of {size} bytes at {place} of {at.url}; restore the file there, or dvc push it again"
        )
    return sha256.hexdigest(), size


def _too_large(path: str, most_bytes: float) -> str:
    return (
        f"{path}: wanted at most {format_bytes(most_bytes)} of files that DVC or Git LFS track, found more; leave some"
        " out by project.exclude, or raise limits.tracked_bytes of the site"
    )


class PointerDigest:
    """Digest of a file as its tool counts it, over blocks of any size."""

    def __init__(self, kind: Digest) -> None:
        self._hash = hashlib.sha256() if kind == "sha256" else hashlib.md5(usedforsecurity=False)
        self._by_lines = kind == "md5-dos2unix"
        self._rest = bytearray()
        self._is_text: bool | None = None

    def update(self, block: bytes) -> None:
        """Add the next bytes of the file."""
        if not self._by_lines:
            self._hash.update(block)
            return
        self._rest += block
        while len(self._rest) >= _BLOCK_BYTES:
            self._add(bytes(self._rest[:_BLOCK_BYTES]))
            del self._rest[:_BLOCK_BYTES]

    def hexdigest(self) -> str:
        """Digest of all bytes; no more can be added after it."""
        self._add(bytes(self._rest))
        self._rest.clear()
        return self._hash.hexdigest()

    def _add(self, block: bytes) -> None:
        if self._is_text is None and block:
            start = block[:_TEXT_START_BYTES]
            self._is_text = b"\0" not in start and len(start.translate(None, _TEXT)) / len(start) <= _MOST_OTHER
        self._hash.update(block.replace(b"\r\n", b"\n") if self._is_text else block)
