"""Images as recorded in the store: which image a key has, who signed it, and how that is verified.

`images/<key>.json` names an image by digest; the signed provenance next to it is what counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gangline import __version__
from gangline.build.image_registry.reference import ImageReference
from gangline.build.oci import documents
from gangline.errors import IntegrityError
from gangline.signing.keys import PublicKey, SigningKey
from gangline.signing.provenance import ImageProvenance, read_image_provenance, sign_image_provenance
from gangline.spec.codec import canonical, digest, from_json
from gangline.storage.objects.blobs import get_blob, put_blob
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import now


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltImage:
    """An image with signed provenance."""

    reference: str
    """`name@sha256:...`, what pods are given."""
    key: str
    """Key of the image's recipe."""
    digest: str
    size_bytes: int
    """Size of the layers, as they travel."""
    seconds: float
    """Duration of the build; 0 for a cached image."""
    cached: bool
    builder: str
    log_key: str | None
    sbom: str
    """Blob key; "" for a base image as it is."""
    provenance: str
    """Blob key of the signed envelope."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of bill of materials and provenance, by kind of artifact."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageStore:
    """Where images are written down, and by whom."""

    store: ObjectStore
    key: SigningKey
    trusted: Mapping[str, PublicKey]
    environ: Mapping[str, str]


def record_base_image(base: str, *, image_store: ImageStore, commit: str) -> BuiltImage:
    """The site's base image as it is: nothing is built, and the site's key vouches for who chose it."""
    reference = ImageReference.parse(base)
    assert reference.digest is not None, base
    key = digest({"base": base})
    stored = image_store.store.get(image_key(key))
    if stored:
        built_image = from_json(BuiltImage, stored.data)
        verify_image(base, provenance=built_image.provenance, store=image_store.store, keys=image_store.trusted)
        return replace(built_image, reference=base, digest=reference.digest, key=key)
    claim = ImageProvenance(image=base, key=key, builder="none", base=base, lock="", commit=commit, sbom="",
    created=now(),
                  versions={"gangline": __version__})  # fmt: skip
    envelope = sign_image_provenance(claim, image_store.key)
    image = BuiltImage(
        reference=base, key=key, digest=reference.digest, size_bytes=0, seconds=0.0, cached=True, builder="none",
        log_key=None, sbom="", provenance=put_blob(image_store.store, envelope),
        sizes={"image-provenance": len(envelope)},
    )  # fmt: skip
    image_store.store.put_if_absent(image_key(key), canonical(image))
    return image


def verify_image(image: str, *, provenance: str, store: ObjectStore, keys: Mapping[str, PublicKey]) -> str:
    """One sentence on who vouches for `image`.

    Args:
        image: `name@sha256:...`.
        provenance: Blob key of its envelope.
        store: Holds envelope and bill.
        keys: That are trusted, by id.

    Raises:
        IntegrityError: Provenance or bill is missing, forged, or of another image.
        StorageError: The store did not answer.
    """
    claim, signer = read_image_provenance(get_blob(store, provenance), keys)
    if claim.image != image:
        raise IntegrityError(f"wanted provenance of {image}, found one of {claim.image}")
    if claim.builder != "none":
        documents.parse(get_blob(store, claim.sbom), "bill of materials")
    return f"{image.partition('@')[2][:19]} by {claim.builder} for commit {claim.commit[:8]}, signed by key {signer}"


def image_key(key: str) -> str:
    """Store key of what is known of the image with the build key `key`."""
    return f"images/{key}.json"
