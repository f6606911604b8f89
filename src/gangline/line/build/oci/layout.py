"""An OCI image layout on disk: blobs by digest below one folder, an index of what has a name.

Every blob is verified before it is parsed. `archive` gives the tar that `ctr images import` and `docker load` read.
"""

import hashlib
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from gangline.errors import IntegrityError
from gangline.line.build.oci import documents
from gangline.line.build.oci.documents import Descriptor, Image, Platform, Settings
from gangline.line.build.oci.layer import PIECE_BYTES, Layer, write_layer
from gangline.line.build.oci.members import Member
from gangline.spec.codec import canonical

CONTAINERD_NAME = "io.containerd.image.name"
REF_NAME = "org.opencontainers.image.ref.name"
MAX_DOCUMENT_BYTES = 4 << 20
_BLOB = re.compile(r"blobs/sha256/[0-9a-f]{64}\Z")


class Layout:
    def __init__(self, folder: Path) -> None:
        """A layout that stands in `folder`."""
        self.folder = folder
        self._blobs = folder / "blobs" / "sha256"

    @staticmethod
    def create(folder: Path) -> "Layout":
        """An empty one in `folder`, which is made."""
        layout = Layout(folder)
        layout._blobs.mkdir(parents=True, exist_ok=True)
        (folder / "oci-layout").write_bytes(canonical({"imageLayoutVersion": "1.0.0"}))
        (folder / "index.json").write_bytes(documents.index_bytes(()))
        return layout

    @staticmethod
    def from_archive(path: Path, folder: Path) -> "Layout":
        """Unpack the archive `path` into `folder`; what no layout has is refused, every blob is verified.

        Raises:
            IntegrityError: It is no archive of a layout, or a blob is not what its name says.
        """
        layout = Layout.create(folder)
        try:
            with tarfile.open(path, mode="r:") as tar:
                for info in tar:
                    _take(layout.folder, tar, info)
        except tarfile.TarError as error:
            raise IntegrityError(f"{path}: wanted an uncompressed tar of an OCI layout, found {error}") from error
        return layout

    def add(self, data: bytes, media_type: str) -> Descriptor:
        found = documents.describe(data, media_type)
        self.path(found).write_bytes(data)
        return found

    def add_layer(self, members: Iterable[Member], *, compress: bool = False) -> Layer:
        """A layer of `members`; compressed where it travels far, plain where it is imported beside."""
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

    def add_tar(self, path: Path) -> Layer:
        """An uncompressed tar that exists as a layer; it is copied."""
        with path.open("rb") as file:
            digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        found = Descriptor(media_type=documents.LAYER, digest=digest, size_bytes=path.stat().st_size)
        shutil.copyfile(path, self.path(found))
        return Layer(found, digest)

    def add_image(
        self,
        layers: Sequence[Layer],
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
        standing = base or documents.empty(platform or Platform.here())
        image = documents.extend(standing, [(each.descriptor, each.diff_id) for each in layers], settings or Settings())
        config = self.add(canonical(image.config), documents.CONFIG)
        manifest = self.add(documents.manifest_bytes(image, config), documents.MANIFEST)
        return replace(manifest, platform=image.platform)

    def tag(self, name: str, image: Descriptor) -> None:
        """Call `image` by its full `name`, `host/repository:tag`; an older image of that name loses it."""
        notes = {CONTAINERD_NAME: name, REF_NAME: name.rpartition(":")[2]}
        others = [each for each in self.images() if each.annotations.get(CONTAINERD_NAME) != name]
        named = sorted([*others, replace(image, annotations=notes)], key=lambda each: each.annotations[CONTAINERD_NAME])
        (self.folder / "index.json").write_bytes(documents.index_bytes(named))

    def images(self) -> tuple[Descriptor, ...]:
        """What the index names."""
        return documents.parse_index((self.folder / "index.json").read_bytes())

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

    def archive(self, target: Path) -> None:
        """The layout as one tar, the same bytes for the same layout."""
        names = ["oci-layout", "index.json", *(f"blobs/sha256/{path.name}" for path in sorted(self._blobs.iterdir()))]
        with tarfile.open(target, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name in names:
                info = tarfile.TarInfo(name)
                info.size, info.mode = (self.folder / name).stat().st_size, 0o644
                with (self.folder / name).open("rb") as file:
                    tar.addfile(info, file)


def _take(folder: Path, tar: tarfile.TarFile, info: tarfile.TarInfo) -> None:
    """One member of an archive; folders and notes of other tools are passed over."""
    is_blob = _BLOB.match(info.name) is not None
    if not is_blob and info.name != "index.json":
        return
    content = tar.extractfile(info) if info.isreg() else None
    if content is None or (not is_blob and info.size > MAX_DOCUMENT_BYTES):
        raise IntegrityError(f"{info.name}: wanted a regular file of its kind in an archive of images")
    digest = hashlib.sha256()
    with (folder / info.name).open("wb") as file:
        while piece := content.read(PIECE_BYTES):
            digest.update(piece)
            file.write(piece)
    if is_blob and digest.hexdigest() != info.name.rpartition("/")[2]:
        raise IntegrityError(f"{info.name} does not have the digest it is named by")
