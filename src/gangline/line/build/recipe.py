"""What an environment image is made of, and the key by which it is found again. A commit's code is no part of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import gangline
from gangline.errors import ConfigError
from gangline.line.build.oci.documents import Platform
from gangline.line.build.oci.members import Member, from_folder
from gangline.line.build.reference import Reference
from gangline.spec.codec import digest

VERSION = 1
"""Of what builders do with a recipe; another version is another image."""
HOME = "opt/gangline"
"""Where an image has its virtual environment: `bin/python` is the first `python` on PATH."""
USER = "65532:65532"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What decides an image: equal recipes, equal key."""

    lock: bytes
    """Requirements with hashes."""
    base: Reference
    """By digest."""
    image: Reference
    """Where the result is pushed, without a tag."""
    platform: Platform
    dockerfile: bytes
    package: str
    """Digest of the gangline that goes in."""

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
        """For people; machines use the digest."""
        return f"env-{self.key[:12]}"

    @property
    def target(self) -> Reference:
        return self.image.tagged(self.tag)


def make_recipe(lock: bytes, *, base: str, image: str, platform: Platform | None = None) -> Recipe:
    """The recipe of this gangline for `lock` on `base`, to be pushed to `image`.

    Raises:
        ConfigError: A reference does not hold, or the lock is not hashed.
    """
    check_lock(lock)
    return Recipe(
        lock=lock, base=Reference.parse(base), image=Reference.parse(image), platform=platform or Platform.here(),
        dockerfile=dockerfile(), package=package_digest(),
    )  # fmt: skip


def dockerfile() -> bytes:
    return files("gangline.line.build").joinpath("runtime.Dockerfile").read_bytes()


def check_lock(lock: bytes) -> None:
    """Raises ConfigError unless every requirement has a hash and nothing else is said."""
    try:
        text = lock.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("env.lock: wanted requirements in UTF-8, found other bytes") from error
    for line in logical_lines(text):
        if line.startswith("-"):
            raise ConfigError(f"env.lock: wanted requirements alone, found the option {line.split()[0]}; configure pip")
        if "--hash=sha256:" not in line or "==" not in line:
            raise ConfigError(
                f"env.lock: wanted NAME==VERSION --hash=sha256:..., found {line[:80]!r}; uv pip compile"
                " --generate-hashes writes that"
            )


def logical_lines(text: str) -> Iterator[str]:
    """Requirements, one each: comments gone, continued lines joined."""
    joined = text.replace("\\\r\n", " ").replace("\\\n", " ")
    for line in joined.splitlines():
        kept = line.partition("#")[0] if line.lstrip().startswith("#") else line.partition(" #")[0]
        if kept.strip():
            yield " ".join(kept.split())


def package_members(at: str) -> Iterator[Member]:
    """The gangline that runs here, as files of an image."""
    for member in from_folder(Path(gangline.__file__).parent, at=at, exclude=("**/__pycache__",)):
        yield replace(member, mode=0o755 if member.folder else 0o644)


@cache
def package_digest() -> str:
    found = ((member.path, member.data) for member in package_members("gangline"))
    return digest([[path, sha256(data.read_bytes()).hexdigest()] for path, data in found if isinstance(data, Path)])
