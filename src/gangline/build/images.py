"""Environment image of a run: found by the key of its recipe, else built, signed and recorded.

The store says which image a key has, by digest; tags are for people and decide nothing. Of two drivers that build at
once the first to write decides for both, and the image of the other is not used.
"""

import platform as machine
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

from packaging.markers import Marker

from gangline import __version__
from gangline.build.builders import Builder
from gangline.build.builders.recipe import USER, Recipe
from gangline.build.builders.workspace import BuildWorkspace
from gangline.build.image_registry.http import check_registry_address
from gangline.build.image_registry.reference import ImageReference
from gangline.build.image_registry.repository import ImageRepository
from gangline.build.image_store import BuiltImage, ImageStore, image_key, verify_image
from gangline.build.oci.documents import Platform
from gangline.errors import BuildError, IntegrityError
from gangline.signing.provenance import ImageProvenance, read_image_provenance, sign_image_provenance
from gangline.signing.sbom import Package, render_image_sbom
from gangline.spec.codec import canonical, from_json
from gangline.spec.config.lock import read_lock
from gangline.storage.objects.blobs import get_blob, put_blob
from gangline.storage.objects.protocol import Blob
from gangline.units import now

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def _image_sbom(recipe: Recipe, *, image: str, created: str) -> bytes:
    """CycloneDX of the image by digest, as JSON."""
    packages = locked_packages(recipe.lock, recipe.platform)
    return render_image_sbom(
        name=recipe.image.name, version=image, kind="container", serial=recipe.key, created=created, packages=packages
    ).encode()


def locked_packages(lock: bytes, platform: Platform) -> tuple[Package, ...]:
    """What `lock` installs on `platform` under this minor version of Python, sorted."""
    return tuple(sorted(_iter_locked(lock, platform)))


def _iter_locked(lock: bytes, platform: Platform) -> Iterator[Package]:
    environment = {
        "os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "python_full_version": machine.python_version(),
        "python_version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "platform_machine": _MACHINES.get(platform.architecture, platform.architecture),
    }  # fmt: skip
    for pin in read_lock(lock, file="env.lock"):
        if pin.marker is None or Marker(pin.marker).evaluate(environment):
            yield Package(name=pin.name, version=pin.version, sha256=tuple(sorted(pin.sha256)))


MAX_LOG_BYTES = 8 << 20


def build_image(recipe: Recipe, *, builder: Builder, image_store: ImageStore, commit: str) -> BuiltImage:
    """The image of `recipe`, built now or found.

    Raises:
        BuildError: The builder failed; its log is in the store.
        ConfigError: Base, registry or builder is not as the site says.
        IntegrityError: What is written down is not signed by a trusted key, or not what the registry gives.
        StorageError: Registry or store did not answer.
    """
    registry = ImageRepository.open(recipe.image, image_store.environ, named_by_site=True)
    stored = image_store.store.get(image_key(recipe.key))
    if stored and (built_image := _verified_image(stored, registry, recipe, image_store)):
        return built_image
    image = _build_and_sign(recipe, builder, image_store, registry, commit)
    return _record_image(image, stored, registry, recipe, image_store)


def find_image(recipe: Recipe, *, image_store: ImageStore) -> BuiltImage | None:
    """The image of `recipe` where it was built before; raises as `build_image`, which builds one otherwise."""
    stored = image_store.store.get(image_key(recipe.key))
    return (
        _verified_image(
            stored, ImageRepository.open(recipe.image, image_store.environ, named_by_site=True), recipe, image_store
        )
        if stored
        else None
    )


def _build_and_sign(
    recipe: Recipe, builder: Builder, image_store: ImageStore, registry: ImageRepository, commit: str
) -> BuiltImage:
    """Build, look at the result, write bill and provenance."""
    began = time.monotonic()
    made, log_key = _build(recipe, builder, image_store)
    size = _size(registry, recipe.image.at(made), recipe)
    reference = str(recipe.image.at(made))
    created = now()
    bill = _image_sbom(recipe, image=reference, created=created)
    sbom = put_blob(image_store.store, bill)
    claim = ImageProvenance(
        image=reference, key=recipe.key, builder=builder.name, base=str(recipe.base),
        lock=sha256(recipe.lock).hexdigest(), commit=commit, sbom=sbom, created=created,
        versions={"gangline": __version__},
    )  # fmt: skip
    envelope = sign_image_provenance(claim, image_store.key)
    return BuiltImage(
        reference=reference, key=recipe.key, digest=made, size_bytes=size, seconds=round(time.monotonic() - began, 3),
        cached=False, builder=builder.name, log_key=log_key, sbom=sbom,
        provenance=put_blob(image_store.store, envelope),
        sizes={"image-provenance": len(envelope), "image-sbom": len(bill)},
    )  # fmt: skip


def _verified_image(
    stored: Blob, registry: ImageRepository, recipe: Recipe, image_store: ImageStore
) -> BuiltImage | None:
    """What the store says of the key, verified; None where the registry lost it."""
    image = from_json(BuiltImage, stored.data)
    if image.key != recipe.key or ImageReference.parse(image.reference).name != recipe.image.name:
        return None
    verify_image(image.reference, provenance=image.provenance, store=image_store.store, keys=image_store.trusted)
    claim, _ = read_image_provenance(get_blob(image_store.store, image.provenance), image_store.trusted)
    if claim.key != recipe.key:
        raise IntegrityError(
            f"{image_key(recipe.key)} names an image of the key {claim.key[:12]}; delete it to build again"
        )
    if registry.resolve(image.digest) is None:
        return None
    return replace(image, cached=True, seconds=0.0)


def _build(recipe: Recipe, builder: Builder, image_store: ImageStore) -> tuple[str, str]:
    """Digest and log key; the log is kept of failed builds, too."""
    if not recipe.is_of_site(recipe.base):
        check_registry_address(recipe.base.host)
    with BuildWorkspace.at(image_store.environ) as workspace:
        try:
            made = builder.build(recipe, workspace)
        except (BuildError, OSError) as error:
            log_key = _store_log(recipe, workspace, image_store)
            raise BuildError(f"{recipe.target} was not built: {error}; whole log: {log_key}") from error
        return made, _store_log(recipe, workspace, image_store)


def _store_log(recipe: Recipe, workspace: BuildWorkspace, image_store: ImageStore) -> str:
    text = workspace.words().encode()[-MAX_LOG_BYTES:]
    key = f"logs/build/{recipe.key[:12]}-{sha256(text).hexdigest()[:12]}.log"
    image_store.store.put(key, text)
    return key


def _size(registry: ImageRepository, reference: ImageReference, recipe: Recipe) -> int:
    """Bytes of the layers; reading the image back proves that it is there and whole."""
    _, image = registry.image(reference, recipe.platform)
    user = image.user.partition(":")[0]
    if not user.isdigit() or int(user) == 0:
        raise BuildError(f"{reference} runs as {image.user or 'root'}; clusters want a number but 0: USER {USER}")
    return sum(layer.size_bytes for layer in image.layers)


def _record_image(
    image: BuiltImage, stored: Blob | None, registry: ImageRepository, recipe: Recipe, image_store: ImageStore
) -> BuiltImage:
    """Write down what was made; where another driver was first, its image is the image."""
    where, data, store = image_key(image.key), canonical(image), image_store.store
    won = store.compare_and_set(where, data, stored.etag) if stored else store.put_if_absent(where, data)
    if won is not None:
        return image
    other = store.get(where)
    return (other and _verified_image(other, registry, recipe, image_store)) or image
