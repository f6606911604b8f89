"""Client of one repository in an image registry: images read and written by digest, every byte verified both ways."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gangline.build.image_registry.credentials import find_login
from gangline.build.image_registry.http import RegistryHttp, read_body, read_pieces
from gangline.build.image_registry.reference import ImageReference
from gangline.build.oci import documents
from gangline.build.oci.documents import Descriptor, Image, Platform
from gangline.build.oci.layout import MAX_DOCUMENT_BYTES, ImageLayout
from gangline.errors import ConfigError, IntegrityError, StorageError

if TYPE_CHECKING:
    from gangline.http.client import HttpStream

CHUNK_BYTES = 64 << 20
"""Larger blobs are sent in chunks of this."""
_TRIES = 3
_ACCEPT = ", ".join((*documents.MANIFESTS, *documents.INDEXES))


class ImageRepository:
    """One repository of an image registry: manifests and blobs are pulled, pushed and verified."""

    def __init__(self, name: ImageReference, http: RegistryHttp) -> None:
        """The repository of `name`; tag and digest of it are ignored."""
        self.host, self.repository = name.host, name.repository
        self._http = http

    @staticmethod
    def open(name: ImageReference, environ: Mapping[str, str], *, named_by_site: bool) -> "ImageRepository":
        """Open a repository with the login that docker's configuration has for the host."""
        return ImageRepository(
            name, RegistryHttp(name.host, find_login(name.host, environ), named_by_site=named_by_site)
        )

    def resolve(self, tag: str) -> Descriptor | None:
        """What `tag` (or a digest) names now; None where there is no such manifest."""
        found = self._manifest(tag)
        return None if found is None else documents.describe(*found)

    def image(self, reference: ImageReference, platform: Platform) -> tuple[Descriptor, Image]:
        """The manifest of `reference` for `platform`, with its config; all verified.

        Raises:
            ConfigError: There is no such image, or none for the platform.
            IntegrityError: Something does not match its digest.
        """
        data, kind = self._wanted(reference.digest or reference.tag or "latest", reference)
        if kind in documents.INDEXES:
            chosen = next(
                (descriptor for descriptor in documents.parse_index(data) if descriptor.platform == platform), None
            )
            if chosen is None:
                raise ConfigError(f"{reference} has no image for {platform}")
            data, kind = self._wanted(chosen.digest, reference)
        config, layers = documents.parse_manifest(data)
        image = Image(config=documents.parse(self.read(config), "config"), layers=layers)
        if image.platform != platform:
            raise ConfigError(f"{reference} is for {image.platform}, wanted {platform}")
        return documents.describe(data, kind), image

    def read(self, blob: Descriptor, *, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        """A small blob whole, verified."""
        if blob.size_bytes > limit:
            raise IntegrityError(f"{blob.digest} claims {blob.size_bytes} bytes, at most {limit} are read")
        return b"".join(self._pieces(blob))

    def fetch(self, blob: Descriptor, target: Path) -> None:
        """Write a blob to the new file `target`; nothing stays of one that does not match its digest."""
        draft = target.with_name(f".{target.name}.part")
        try:
            with draft.open("wb") as file:
                for piece in self._pieces(blob):
                    file.write(piece)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)

    def has(self, blob: Descriptor) -> bool:
        """Does the repository have `blob`?"""
        answer = self._ask("HEAD", f"blobs/{blob.digest}")
        answer.close()
        return answer.status == 200

    def push(
        self, layout: ImageLayout, manifest: Descriptor, *, tag: str, base: "ImageRepository | None" = None
    ) -> Descriptor:
        """Write an image of `layout` under `tag` and read it back.

        Args:
            layout: Holds the manifest, the config and the layers that `base` does not have.
            manifest: Of the image.
            tag: For people; the digest is what is used.
            base: Where the other layers are; on the same host they are mounted, else copied.

        Raises:
            IntegrityError: The registry gives back something else.
        """
        data = layout.read(manifest)
        config, layers = documents.parse_manifest(data)
        for blob in (config, *layers):
            self._push_blob(blob, layout, base)
        answer = self._ask(
            "PUT", f"manifests/{tag}", push=True, headers={"Content-Type": manifest.media_type}, body=data
        )
        self._expect(answer, 201, f"manifest {tag}")
        found = self._manifest(manifest.digest)
        if found is None or found[0] != data:
            raise IntegrityError(f"{self}: {manifest.digest} was pushed and what is read back differs")
        return manifest

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}"

    def _push_blob(self, blob: Descriptor, layout: ImageLayout, base: "ImageRepository | None") -> None:
        """Try a few times whole: an upload that broke starts again."""
        for attempt in range(1, _TRIES + 1):
            try:
                if not self.has(blob) and not self._mount(blob, base):
                    self._upload(blob, self._source(blob, layout, base))
            except StorageError:
                if attempt == _TRIES:
                    raise
            else:
                return

    def _source(self, blob: Descriptor, layout: ImageLayout, base: "ImageRepository | None") -> Path:
        path = layout.path(blob)
        if not path.exists():
            if base is None:
                raise IntegrityError(
                    f"{self}: wanted the blob {blob.digest}, found it neither here nor in a base image"
                )
            base.fetch(blob, path)
        return path

    def _mount(self, blob: Descriptor, base: "ImageRepository | None") -> bool:
        if base is None or base.host != self.host or not base.has(blob):
            return False
        where = f"blobs/uploads/?mount={blob.digest}&from={base.repository}"
        answer = self._ask("POST", where, push=True, mounts=base.repository)
        answer.close()
        if answer.status == 202:  # not mounted: the registry opened an upload instead, which is given up
            with suppress(StorageError, ConfigError):  # what stays of it, the registry collects
                self._ask("DELETE", answer.headers.get("Location", ""), push=True).close()
        return answer.status == 201

    def _upload(self, blob: Descriptor, source: Path) -> None:
        opened = self._expect(
            self._ask("POST", "blobs/uploads/", push=True, headers={"Content-Length": "0"}), 202, "upload"
        )
        place = opened.headers.get("Location", "")
        with source.open("rb") as file:
            if blob.size_bytes > CHUNK_BYTES:
                place = self._send_chunks(file, blob, place)
                last, size = None, 0
            else:
                last, size = file, blob.size_bytes
            join = "&" if "?" in place else "?"
            headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
            answer = self._ask("PUT", f"{place}{join}digest={blob.digest}", push=True, headers=headers, body=last)
        self._expect(answer, 201, f"blob {blob.digest}")

    def _send_chunks(self, file: BinaryIO, blob: Descriptor, place: str) -> str:
        at = 0
        while piece := file.read(CHUNK_BYTES):
            headers = {"Content-Length": str(len(piece)), "Content-Range": f"{at}-{at + len(piece) - 1}",
                       "Content-Type": "application/octet-stream"}  # fmt: skip
            answer = self._expect(
                self._ask("PATCH", place, push=True, headers=headers, body=piece), 202, f"{blob.digest} at {at}"
            )
            place, at = answer.headers.get("Location", ""), at + len(piece)
        return place

    def _pieces(self, blob: Descriptor) -> Iterator[bytes]:
        """The blob's bytes; raises IntegrityError at their end, if size or digest differ."""
        answer = self._expect(self._ask("GET", f"blobs/{blob.digest}"), 200, f"blob {blob.digest}")
        digest, seen = hashlib.sha256(), 0
        for piece in read_pieces(answer, limit=blob.size_bytes):
            digest.update(piece)
            seen += len(piece)
            yield piece
        if seen != blob.size_bytes or digest.hexdigest() != blob.hex:
            raise IntegrityError(f"{self}: blob {blob.digest} does not match its digest and size")

    def _wanted(self, tag: str, reference: object) -> tuple[bytes, str]:
        found = self._manifest(tag)
        if found is None:
            raise ConfigError(f"wanted the image {reference}, found none of that name at {self.host}")
        return found

    def _manifest(self, tag: str) -> tuple[bytes, str] | None:
        answer = self._ask("GET", f"manifests/{tag}", headers={"Accept": _ACCEPT})
        if answer.status == 404:
            answer.close()
            return None
        data = read_body(self._expect(answer, 200, f"manifest {tag}"), limit=MAX_DOCUMENT_BYTES)
        kind = answer.headers.get("Content-Type", "").partition(";")[0]
        if tag.startswith("sha256:") and documents.describe(data, kind).digest != tag:
            raise IntegrityError(f"{self}: the manifest {tag} does not match its digest")
        if kind not in (*documents.MANIFESTS, *documents.INDEXES):
            raise IntegrityError(f"{self}: wanted an image manifest, found {kind!r}")
        return data, kind

    def _ask(
        self,
        method: str,
        path: str,
        *,
        push: bool = False,
        mounts: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | BinaryIO | None = None,
    ) -> "HttpStream":
        where = path if path.startswith(("http://", "https://", "/")) else f"/v2/{self.repository}/{path}"
        scope = f"repository:{self.repository}:{'pull,push' if push else 'pull'}"
        if mounts is not None:
            scope += f" repository:{mounts}:pull"
        return self._http.ask(method, where, scope=scope, headers=headers, body=body)

    def _expect(self, answer: "HttpStream", status: int, what: str) -> "HttpStream":
        if answer.status != status:
            said = read_body(answer, limit=MAX_DOCUMENT_BYTES)[:300] if answer.status >= 400 else b""
            raise StorageError(
                f"{self}: {what}: wanted {status}, found {answer.status} {said.decode(errors='replace')}"
            )
        return answer
