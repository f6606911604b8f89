"""A code layer: a tar of regular files in a blob, laid out as a folder. Links, devices and ways out are refused.

The tar is read member by member, nothing is left to the extraction of a library: what is not a plain file below the
folder, once, and small enough altogether, is no code layer.
"""

import io
import tarfile
from pathlib import Path, PurePosixPath

from gangline.errors import IntegrityError
from gangline.storage.blobs import get_blob
from gangline.storage.protocol import ObjectStore
from gangline.units import format_bytes

MAX_BYTES = 64 << 20
MAX_FILES = 50_000


def fetch_layer(store: ObjectStore, key: str, folder: Path) -> int:
    """Lay the files of the layer `key` out below the new folder `folder`; how many there are.

    Raises:
        IntegrityError: Its digest, or anything in it, is not what a code layer has.
        StorageError: There is no such blob.
    """
    return unpack(get_blob(store, key), folder, name=key)


def unpack(data: bytes, folder: Path, *, name: str = "code layer") -> int:
    """Lay `data` out below `folder`; files are readable by others and executable where they were, nothing else."""
    folder.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            return _write_members(tar, folder, name)
    except tarfile.TarError as error:
        raise IntegrityError(f"{name}: wanted an uncompressed tar, found {error}") from error


def _write_members(tar: tarfile.TarFile, folder: Path, name: str) -> int:
    seen: set[str] = set()
    total = 0
    for member in tar:
        path = _checked_path(member, name)
        total += member.size
        if total > MAX_BYTES or len(seen) >= MAX_FILES:
            raise IntegrityError(f"{name}: more than {MAX_FILES} files or {format_bytes(MAX_BYTES)}")
        if path.casefold() in seen:
            raise IntegrityError(f"{name}: {path!r} is there twice, up to case")
        seen.add(path.casefold())
        _write_member(tar, member, folder / path, name)
    return len(seen)


def _checked_path(member: tarfile.TarInfo, name: str) -> str:
    if not member.isreg():
        raise IntegrityError(f"{name}: {member.name!r} is no regular file; a code layer holds nothing else")
    parts = PurePosixPath(member.name).parts
    plain = "/".join(parts) == member.name and "\\" not in member.name and "\0" not in member.name
    if not parts or not plain or parts[0] == "/" or ".." in parts or len(member.name.encode()) > 900:
        raise IntegrityError(f"{name}: {member.name!r} is no plain relative path")
    return member.name


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, name: str) -> None:
    content = tar.extractfile(member)
    data = content.read() if content else b""
    if len(data) != member.size:
        raise IntegrityError(f"{name}: {member.name!r} is cut off")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(data)
    except (FileExistsError, NotADirectoryError) as error:
        raise IntegrityError(f"{name}: {member.name!r} is a file and a folder") from error
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
