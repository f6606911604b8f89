"""The environment image of a run: found by the key of its recipe, else built, signed and written down.

The store says which image a key has, by digest; tags are for people and decide nothing. Of two drivers that build at
once the first to write decides for both, and the other's image is just not used.
"""

import time
from dataclasses import replace
from hashlib import sha256

from gangline import __version__
from gangline.errors import BuildError, IntegrityError
from gangline.line.build.attest import Claim, read_claim, sign_claim
from gangline.line.build.bill import image_bill
from gangline.line.build.builders import Builder
from gangline.line.build.builders.bench import Bench
from gangline.line.build.recipe import USER, Recipe
from gangline.line.build.reference import Reference
from gangline.line.build.registry import Registry
from gangline.line.build.vouched import BuiltImage, Office, place, verify_image
from gangline.line.build.wire import check_registry
from gangline.line.clock import now
from gangline.spec.codec import canonical, from_json
from gangline.storage.blobs import get_blob, put_blob
from gangline.storage.protocol import Blob

MAX_LOG_BYTES = 8 << 20


def build_image(recipe: Recipe, *, builder: Builder, office: Office, commit: str) -> BuiltImage:
    """The image of `recipe`, built now or found.

    Raises:
        BuildError: The builder failed; its log is in the store.
        ConfigError: Base, registry or builder is not as the site says.
        IntegrityError: What is written down is not signed by a trusted key, or not what the registry gives.
        StorageError: Registry or store did not answer.
    """
    registry = Registry.open(recipe.image, office.environ, named_by_site=True)
    standing = office.store.get(place(recipe.key))
    if standing and (found := _still_there(standing, registry, recipe, office)):
        return found
    image = _make(recipe, builder, office, registry, commit)
    return _write(image, standing, registry, recipe, office)


def find_image(recipe: Recipe, *, office: Office) -> BuiltImage | None:
    """The image of `recipe` where it was built before; raises as `build_image`, which builds one otherwise."""
    standing = office.store.get(place(recipe.key))
    return (
        _still_there(standing, Registry.open(recipe.image, office.environ, named_by_site=True), recipe, office)
        if standing
        else None
    )


def _make(recipe: Recipe, builder: Builder, office: Office, registry: Registry, commit: str) -> BuiltImage:
    """Build, look at the result, write bill and provenance."""
    began = time.monotonic()
    made, log_key = _build(recipe, builder, office)
    size = _size(registry, recipe.image.at(made), recipe)
    reference = str(recipe.image.at(made))
    created = now()
    bill = image_bill(recipe, image=reference, created=created)
    sbom = put_blob(office.store, bill)
    claim = Claim(
        image=reference, key=recipe.key, builder=builder.name, base=str(recipe.base),
        lock=sha256(recipe.lock).hexdigest(), commit=commit, sbom=sbom, created=created,
        versions={"gangline": __version__},
    )  # fmt: skip
    envelope = sign_claim(claim, office.key)
    return BuiltImage(
        reference=reference, key=recipe.key, digest=made, size_bytes=size, seconds=round(time.monotonic() - began, 3),
        cached=False, builder=builder.name, log_key=log_key, sbom=sbom,
        provenance=put_blob(office.store, envelope),
        sizes={"image-provenance": len(envelope), "image-sbom": len(bill)},
    )  # fmt: skip


def _still_there(standing: Blob, registry: Registry, recipe: Recipe, office: Office) -> BuiltImage | None:
    """What the store says of the key, verified; None where the registry lost it."""
    found = from_json(BuiltImage, standing.data)
    if found.key != recipe.key or Reference.parse(found.reference).name != recipe.image.name:
        return None
    verify_image(found.reference, provenance=found.provenance, store=office.store, keys=office.trusted)
    claim, _ = read_claim(get_blob(office.store, found.provenance), office.trusted)
    if claim.key != recipe.key:
        raise IntegrityError(f"{place(recipe.key)} names an image of the key {claim.key[:12]}; delete it to build anew")
    if registry.resolve(found.digest) is None:
        return None
    return replace(found, cached=True, seconds=0.0)


def _build(recipe: Recipe, builder: Builder, office: Office) -> tuple[str, str]:
    """Digest and log key; the log is kept of failed builds, too."""
    if not recipe.is_of_site(recipe.base):
        check_registry(recipe.base.host)
    with Bench.at(office.environ) as bench:
        try:
            made = builder.build(recipe, bench)
        except (BuildError, OSError) as error:
            log_key = _keep_log(recipe, bench, office)
            raise BuildError(f"{recipe.target} was not built: {error}; whole log: {log_key}") from error
        return made, _keep_log(recipe, bench, office)


def _keep_log(recipe: Recipe, bench: Bench, office: Office) -> str:
    text = bench.words().encode()[-MAX_LOG_BYTES:]
    key = f"logs/build/{recipe.key[:12]}-{sha256(text).hexdigest()[:12]}.log"
    office.store.put(key, text)
    return key


def _size(registry: Registry, reference: Reference, recipe: Recipe) -> int:
    """Bytes of the layers; reading the image back proves that it is there and whole."""
    _, image = registry.image(reference, recipe.platform)
    user = image.user.partition(":")[0]
    if not user.isdigit() or int(user) == 0:
        raise BuildError(f"{reference} runs as {image.user or 'root'}; clusters want a number but 0: USER {USER}")
    return sum(layer.size_bytes for layer in image.layers)


def _write(image: BuiltImage, standing: Blob | None, registry: Registry, recipe: Recipe, office: Office) -> BuiltImage:
    """Write down what was made; where another driver was first, its image is the image."""
    where, data, store = place(image.key), canonical(image), office.store
    won = store.compare_and_set(where, data, standing.etag) if standing else store.put_if_absent(where, data)
    if won is not None:
        return image
    other = store.get(where)
    return (other and _still_there(other, registry, recipe, office)) or image
