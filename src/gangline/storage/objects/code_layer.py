"""A code layer: a ZIP of stored regular files with one possible form, so that equal files are equal bytes.

Sorted paths, no compression, no times, no comments, nothing between the entries. What is not exactly the bytes that
`pack` makes of the files found in it is refused: it may have hidden, overlapping, false or linking entries.
Any ZIP tool opens it; nothing here is left to the extraction of a library.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import IntegrityError
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.paths import check_new_path, clash
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes

MAX_BYTES = 64 << 20
MAX_FILES = 50_000
_LOCAL, _CENTRAL, _END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s4H2IH")
_VERSION, _UNIX, _UTF8, _STORED = 20, 3 << 8, 0x800, 0
_TIME, _DATE = 0, 1 << 5 | 1
"""1 January 1980, the first day of a ZIP."""
_REGULAR = 0o100000


@dataclass(frozen=True, slots=True)
class LayerFile:
    """One file of a code layer."""

    path: str
    """Relative to the layer, with `/`."""
    data: bytes | memoryview
    executable: bool = False


def pack(files: Iterable[LayerFile]) -> bytes:
    """The layer that holds `files`, whatever their order.

    Raises:
        IntegrityError: A path is not plain, there twice, or a file and a folder; or there is too much.
    """
    ordered = sorted(files, key=lambda file: file.path)
    check(ordered)
    parts: list[bytes | memoryview] = []
    central: list[bytes] = []
    at = 0
    for file in ordered:
        name, size, crc = file.path.encode(), len(file.data), zlib.crc32(file.data)
        shared = (_VERSION, _UTF8, _STORED, _TIME, _DATE, crc, size, size, len(name), 0)
        mode = (_REGULAR | (0o755 if file.executable else 0o644)) << 16
        parts += (_LOCAL.pack(b"PK\3\4", *shared), name, file.data)
        central += (_CENTRAL.pack(b"PK\1\2", _UNIX | _VERSION, *shared, 0, 0, 0, mode, at), name)
        at += _LOCAL.size + len(name) + size
    tail = b"".join(central)
    end = _END.pack(b"PK\5\6", 0, 0, len(ordered), len(ordered), len(tail), at, 0)
    return b"".join((*parts, tail, end))


def check(files: Sequence[LayerFile]) -> None:
    """Raises IntegrityError unless `files` together may be a layer."""
    total = sum(len(file.data) for file in files)
    if total > MAX_BYTES or len(files) > MAX_FILES:
        raise IntegrityError(
            f"wanted at most {MAX_FILES} files and {format_bytes(MAX_BYTES)}, found {len(files)}, {format_bytes(total)}"
        )
    seen: set[str] = set()
    for file in files:
        check_new_path(file.path)
        if file.path in seen:
            raise IntegrityError(f"{file.path!r} occurs twice")
        seen.add(file.path)
    folders: set[str] = set()
    for file in files:
        parent = file.path.rpartition("/")[0]
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    for file in files:
        if file.path in folders:
            raise IntegrityError(f"{file.path!r} is a file and a folder")


def fetch_layer(store: ObjectStore, key: str, folder: Path) -> int:
    """Lay the files of the layer `key` out below the new folder `folder`; how many there are.

    Raises:
        IntegrityError: Its digest, or anything in it, is not what a code layer has.
        StorageError: The blob is missing.
    """
    return unpack(get_blob(store, key), folder, name=key)


def unpack(data: bytes, folder: Path, *, name: str = "code layer") -> int:
    """Lay `data` out below `folder`; files are readable by others and executable where they were, nothing else.

    Raises:
        IntegrityError: It is no layer, or two of its paths are one on the file system of `folder`.
    """
    files = read_layer(data, name=name)
    folder.mkdir(parents=True)
    if found := clash((file.path for file in files), folder):
        folder.rmdir()
        raise IntegrityError(
            f"{name}: {found[0]} and {found[1]} are one name on the file system of {folder}; use one that keeps letter"
            " case, or leave one out by project.exclude"
        )
    made = {folder}
    for file in files:
        target = folder / file.path
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        with target.open("xb") as out:
            out.write(file.data)
        target.chmod(0o755 if file.executable else 0o644)
    return len(files)


def read_layer(data: bytes, *, name: str = "code layer") -> tuple[LayerFile, ...]:
    """The files of a layer; their data are views of `data`.

    Raises:
        IntegrityError: `data` is not what `pack` makes of any files.
    """
    if len(data) > 2 * MAX_BYTES:
        raise IntegrityError(
            f"{name}: wanted at most {format_bytes(MAX_BYTES)} of files, found {format_bytes(len(data))}"
        )
    try:
        files = _read_files(data)
        same = pack(files) == data
    except (struct.error, UnicodeDecodeError) as error:
        raise IntegrityError(
            f"{name}: wanted a ZIP of stored files, found something else or a part: {error}"
        ) from error
    except IntegrityError as error:
        raise IntegrityError(f"{name}: {error}") from error
    if not same:
        raise IntegrityError(
            f"{name}: wanted a ZIP of stored regular files and nothing else, found other entries or other bytes"
        )
    return files


def _read_files(data: bytes) -> tuple[LayerFile, ...]:
    """Entries parsed from the first byte on; comparison with `pack` shows whether they are all."""
    view = memoryview(data)
    found: list[tuple[str, memoryview]] = []
    at = 0
    while data.startswith(b"PK\3\4", at) and len(found) <= MAX_FILES:
        fields = _LOCAL.unpack_from(data, at)
        size, name_size = fields[8], fields[9]
        start = at + _LOCAL.size + name_size
        found.append((str(view[at + _LOCAL.size : start], "utf-8"), view[start : start + size]))
        at = start + size
    files = []
    for path, content in found:
        mode = _CENTRAL.unpack_from(data, at)[15] >> 16
        files.append(LayerFile(path, content, executable=bool(mode & 0o100)))
        at += _CENTRAL.size + len(path.encode())
    return tuple(files)
