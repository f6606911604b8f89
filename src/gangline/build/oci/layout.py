"""OCI image layout on disk: blobs by digest below one folder, verified before they are parsed.

A layer is a tar file: members in the given order, times zero, digests taken while writing.
"""

import gzip
import hashlib
import io
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from gangline.build.oci import documents
from gangline.build.oci.documents import LAYER, LAYER_GZIP, Descriptor, Image, Platform, Settings
from gangline.errors import BuildError, IntegrityError
from gangline.spec.codec import canonical
from gangline.spec.globs import any_matches


@dataclass(frozen=True, slots=True)
class LayerMember:
    """A file unless `link` or `folder` says otherwise."""

    path: str
    """Relative to the root of the image."""
    data: bytes | Path = b""
    """Content, or the file that has it."""
    mode: int = 0o644
    link: str | None = None
    """Target of a symbolic link."""
    folder: bool = False
    uid: int = 0
    gid: int = 0

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.path).parts
        if not parts or parts[0] == "/" or ".." in parts or "\0" in self.path or "/".join(parts) != self.path:
            raise BuildError(f"wanted a plain relative path in a layer, found {self.path!r}")


def members_of_folder(
    folder: Path, *, at: str = "", exclude: Sequence[str] = (), owner: tuple[int, int] | None = (0, 0)
) -> Iterator[LayerMember]:
    """Everything below `folder`, sorted; hard links become files of their own.

    Args:
        folder: Links are kept, not followed.
        at: Where it goes in the image; `folder` itself is a member then.
        exclude: Globs over paths relative to `folder`.
        owner: Of every member; None: as on disk.

    Raises:
        BuildError: A device, pipe or socket is there; leave it out by `exclude`.
    """
    if at:
        yield _member(folder, at, owner)
    for path in _walk(folder, folder, exclude):
        relative = path.relative_to(folder).as_posix()
        yield _member(path, f"{at}/{relative}" if at else relative, owner)


def _walk(root: Path, folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for path in sorted(folder.iterdir(), key=lambda each: each.name.encode(errors="surrogateescape")):
        if any_matches(path.relative_to(root).as_posix(), exclude):
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(root, path, exclude)


def _member(path: Path, name: str, owner: tuple[int, int] | None) -> LayerMember:
    seen = path.lstat()
    uid, gid = owner if owner is not None else (seen.st_uid, seen.st_gid)
    mode = stat.S_IMODE(seen.st_mode)
    if stat.S_ISLNK(seen.st_mode):
        return LayerMember(name, link=str(path.readlink()), mode=0o777, uid=uid, gid=gid)
    if stat.S_ISDIR(seen.st_mode):
        return LayerMember(name, folder=True, mode=mode, uid=uid, gid=gid)
    if stat.S_ISREG(seen.st_mode):
        return LayerMember(name, data=path, mode=mode, uid=uid, gid=gid)
    raise BuildError(f"{path} is a device, pipe or socket, which no layer holds; leave it out: exclude = [{name!r}]")


MAX_DOCUMENT_BYTES = 4 << 20

PIECE_BYTES = 1 << 20
_LEVEL = 1
"""Level of gzip: wheels are compressed already, and the fastest level is four times as fast as the default."""


@dataclass(frozen=True, slots=True)
class OciLayer:
    """A layer that was written: where its blob is found, and its content."""

    descriptor: Descriptor
    diff_id: str
    """Digest of the uncompressed tar."""


class ImageLayout:
    """A folder of blobs by digest with an index: an OCI image layout."""

    def __init__(self, folder: Path) -> None:
        """The layout in `folder`."""
        self.folder = folder
        self._blobs = folder / "blobs" / "sha256"

    @staticmethod
    def create(folder: Path) -> "ImageLayout":
        """An empty one in `folder`, which is made."""
        layout = ImageLayout(folder)
        layout._blobs.mkdir(parents=True, exist_ok=True)
        return layout

    def add(self, data: bytes, media_type: str) -> Descriptor:
        """Write a blob of these bytes."""
        descriptor = documents.describe(data, media_type)
        self.path(descriptor).write_bytes(data)
        return descriptor

    def add_layer(self, members: Iterable[LayerMember], *, compress: bool = False) -> OciLayer:
        """A layer of `members`; compressed for a registry, plain for an import on the same machine."""
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
            draft = Path(file.name)
            try:
                layer = write_layer(members, cast("BinaryIO", file), compress=compress)
                file.flush()
                draft.chmod(0o644)
                draft.replace(self.path(layer.descriptor))
            finally:
                draft.unlink(missing_ok=True)
        return layer

    def add_image(
        self,
        layers: Sequence[OciLayer],
        *,
        settings: Settings | None = None,
        base: Image | None = None,
        platform: Platform | None = None,
    ) -> Descriptor:
        """Config and manifest of an image: `layers`, on top of `base` where there is one.

        Args:
            layers: Lowest first; of this layout.
            settings: Over those of the base.
            base: Its layers need not lie here, where a registry has them.
            platform: Of an image without a base; None: this machine's.
        """
        base_image = base or documents.empty(platform or Platform.here())
        image = documents.extend(
            base_image, [(layer.descriptor, layer.diff_id) for layer in layers], settings or Settings()
        )
        config = self.add(canonical(image.config), documents.CONFIG)
        manifest = self.add(documents.manifest_bytes(image, config), documents.MANIFEST)
        return replace(manifest, platform=image.platform)

    def image(self, manifest: Descriptor) -> Image:
        """Manifest and config of `manifest`, verified."""
        config, layers = documents.parse_manifest(self.read(manifest))
        return Image(config=documents.parse(self.read(config), "config"), layers=layers)

    def read(self, blob: Descriptor, *, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        """A small blob whole.

        Raises:
            IntegrityError: It is not here, larger than `limit`, or not what its digest says.
        """
        if blob.size_bytes > limit:
            raise IntegrityError(f"{blob.digest} claims {blob.size_bytes} bytes, at most {limit} are read")
        try:
            data = self.path(blob).read_bytes()
        except FileNotFoundError as error:
            raise IntegrityError(f"{self.folder} holds no blob {blob.digest}") from error
        if documents.describe(data, blob.media_type).digest != blob.digest:
            raise IntegrityError(f"{self.path(blob)} does not have the digest it is named by")
        return data

    def path(self, blob: Descriptor) -> Path:
        """Where the blob lies, or would."""
        return self._blobs / blob.hex


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
