"""Layer as a tar file: members in the given order, times zero, digests taken while writing."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from gangline.build.oci.documents import LAYER, LAYER_GZIP, Descriptor
from gangline.build.oci.members import LayerMember
from gangline.errors import BuildError

PIECE_BYTES = 1 << 20
_LEVEL = 1
"""Level of gzip: wheels are compressed already, and the fastest level is four times as fast as the default."""


@dataclass(frozen=True, slots=True)
class OciLayer:
    """A layer that was written: where its blob is found, and its content."""

    descriptor: Descriptor
    diff_id: str
    """Digest of the uncompressed tar."""


def write_layer(members: Iterable[LayerMember], target: BinaryIO, *, compress: bool) -> OciLayer:
    """Write `members` to `target` as one layer.

    Raises:
        BuildError: A path is there twice, or a file changed while it was read.
    """
    stored = _Hashing(target)
    if compress:
        with gzip.GzipFile("", "wb", _LEVEL, cast("BinaryIO", stored), mtime=0) as packed:
            plain = _Hashing(packed)
            _write_members(members, plain)
    else:
        plain = stored
        _write_members(members, plain)
    kind = LAYER_GZIP if compress else LAYER
    return OciLayer(Descriptor(media_type=kind, digest=stored.digest, size_bytes=stored.size_bytes), plain.digest)


def _write_members(members: Iterable[LayerMember], target: "_Hashing") -> None:
    seen: set[str] = set()
    with tarfile.open(
        fileobj=cast("BinaryIO", target), mode="w|", format=tarfile.PAX_FORMAT, bufsize=PIECE_BYTES
    ) as tar:
        for member in members:
            if member.path in seen:
                raise BuildError(f"{member.path} is there twice in one layer")
            seen.add(member.path)
            _write_member(tar, member)


def _write_member(tar: tarfile.TarFile, member: LayerMember) -> None:
    info = tarfile.TarInfo(member.path)
    info.mode, info.uid, info.gid = member.mode, member.uid, member.gid
    if member.folder:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif member.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, member.link
        tar.addfile(info)
    elif isinstance(member.data, bytes):
        info.size = len(member.data)
        tar.addfile(info, io.BytesIO(member.data))
    else:
        _write_file(tar, info, member.data)


def _write_file(tar: tarfile.TarFile, info: tarfile.TarInfo, source: Path) -> None:
    with source.open("rb") as file:
        info.size = source.stat().st_size
        try:
            tar.addfile(info, file)
        except OSError as error:
            raise BuildError(f"{source} could not be read to its end: {error}; is something writing to it?") from error


class _Hashing:
    """A writable file that counts and hashes what passes."""

    def __init__(self, target: object) -> None:
        self._target = cast("BinaryIO", target)
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self.size_bytes += len(data)
        return self._target.write(data)

    def flush(self) -> None:
        self._target.flush()

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"
