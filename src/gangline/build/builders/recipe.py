"""Recipe of an environment image, and the key by which the image is found again; a commit's code is not part of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import gangline
from gangline.build.image_registry.reference import ImageReference
from gangline.build.oci.documents import Platform
from gangline.build.oci.layout import LayerMember, members_of_folder
from gangline.errors import ConfigError
from gangline.spec.codec import digest
from gangline.spec.config.lock import read_lock

VERSION = 1
"""Version of what builders do with a recipe; another version is another image."""
HOME = "opt/gangline"
"""Where an image has its virtual environment: `bin/python` is the first `python` on PATH."""
USER = "65532:65532"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What decides an image: equal recipes, equal key."""

    lock: bytes
    """Requirements with hashes."""
    base: ImageReference
    """Image to build upon, named by its digest."""
    image: ImageReference
    """Where the result is pushed, without a tag."""
    platform: Platform
    dockerfile: bytes
    package: str
    """Digest of the gangline that goes in."""
    site_hosts: frozenset[str] = frozenset()
    """Registries that the site names; of the others no request goes to a private network."""

    def __post_init__(self) -> None:
        if self.base.digest is None:
            raise ConfigError(f"wanted a base image by digest, found {self.base}; {self.base.name}@sha256:... works")

    @property
    def key(self) -> str:
        """Equal keys, equal environments: the image of one serves the other."""
        return digest({
            "lock": sha256(self.lock).hexdigest(),
            "base": self.base.digest,
            "platform": str(self.platform),
            "dockerfile": sha256(self.dockerfile).hexdigest(),
            "package": self.package,
            "version": VERSION,
        })  # fmt: skip

    @property
    def tag(self) -> str:
        """Name that people read; machines use the digest."""
        return f"env-{self.key[:12]}"

    def is_of_site(self, name: ImageReference) -> bool:
        """Does the site name this registry?"""
        return name.host in self.site_hosts

    @property
    def target(self) -> ImageReference:
        """Name and tag that the image is pushed to."""
        return self.image.tagged(self.tag)


def make_recipe(
    lock: bytes,
    *,
    base: str,
    image: str,
    site_base: str | None = None,
    platform: Platform | None = None,
    file: str = "env.lock",
) -> Recipe:
    """The recipe of this gangline for a lock, on a base.

    Args:
        lock: Content of the lock.
        base: By digest; a line may have named it.
        image: What the site has images pushed to.
        site_base: Base that the site names, if any.
        platform: Of the image; None: of this machine.
        file: Name of the lock.

    Raises:
        ConfigError: A reference does not hold, or the lock holds something else than packages by version and hash.
    """
    read_lock(lock, file=file)
    named = [ImageReference.parse(each) for each in (image, site_base) if each]
    return Recipe(
        lock=lock, base=ImageReference.parse(base), image=ImageReference.parse(image),
        platform=platform or Platform.here(),
        dockerfile=dockerfile(), package=package_digest(), site_hosts=frozenset(reference.host for reference in named),
    )  # fmt: skip


def dockerfile() -> bytes:
    """The Dockerfile that builders use."""
    return files("gangline.build").joinpath("runtime.Dockerfile").read_bytes()


def package_members(at: str) -> Iterator[LayerMember]:
    """The gangline that runs here, as files of an image."""
    for member in members_of_folder(Path(gangline.__file__).parent, at=at, exclude=("**/__pycache__",)):
        yield replace(member, mode=0o755 if member.folder else 0o644)


@cache
def package_digest() -> str:
    """Digest of the files of the installed gangline."""
    found = ((member.path, member.data) for member in package_members("gangline"))
    return digest([[path, sha256(data.read_bytes()).hexdigest()] for path, data in found if isinstance(data, Path)])
