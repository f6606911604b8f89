"""OCI image layout on disk: blobs by digest below one folder, verified before they are parsed."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from gangline.build.oci import documents
from gangline.build.oci.documents import Descriptor, Image, Platform, Settings
from gangline.build.oci.layer import OciLayer, write_layer
from gangline.build.oci.members import LayerMember
from gangline.errors import IntegrityError
from gangline.spec.codec import canonical

MAX_DOCUMENT_BYTES = 4 << 20


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
        found = documents.describe(data, media_type)
        self.path(found).write_bytes(data)
        return found

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
            base_image, [(each.descriptor, each.diff_id) for each in layers], settings or Settings()
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
