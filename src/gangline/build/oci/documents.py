"""JSON documents of an image (config, manifest, index) as data: parsed strictly, written canonically."""

import json
import platform as machine
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from gangline.errors import IntegrityError
from gangline.spec.codec import canonical

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
_DOCKER_LAYERS = {
    "application/vnd.docker.image.rootfs.diff.tar": LAYER,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": LAYER_GZIP,
}
MANIFESTS = (MANIFEST, DOCKER_MANIFEST)
INDEXES = (INDEX, DOCKER_INDEX)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
MAX_LAYERS = 127
"""Layers that overlay file systems can stack."""


@dataclass(frozen=True, slots=True)
class Platform:
    """Operating system and machine that an image is for."""

    os: str = "linux"
    architecture: str = "amd64"

    @staticmethod
    def here() -> "Platform":
        """Platform of this machine, with Linux as the system."""
        name = machine.machine()
        return Platform("linux", _MACHINES.get(name, name))

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Descriptor:
    """One blob by digest."""

    media_type: str
    digest: str
    """`sha256:` and 64 hex digits."""
    size_bytes: int
    platform: Platform | None = None
    annotations: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _DIGEST.match(self.digest) or self.size_bytes < 0:
            raise IntegrityError(f"wanted a blob by sha256 digest and size, found {self.digest!r}, {self.size_bytes}")

    @property
    def hex(self) -> str:
        """Its SHA-256 digest without the prefix."""
        return self.digest.removeprefix("sha256:")

    def to_plain(self) -> dict[str, Any]:
        """Plain data in the form of image manifests."""
        plain: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size_bytes}
        if self.platform:
            plain["platform"] = {"os": self.platform.os, "architecture": self.platform.architecture}
        return plain | ({"annotations": dict(self.annotations)} if self.annotations else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a container starts with; what is left out stays as the base image has it."""

    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    """Numeric, `uid:gid`: clusters refuse names."""
    workdir: str | None = None
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """A manifest with its config: the base that a new layer is added to."""

    config: dict[str, Any]
    """The config document; its unknown fields are kept."""
    layers: tuple[Descriptor, ...]

    @property
    def env(self) -> dict[str, str]:
        """Variables of its configuration."""
        listed = self.config.get("config", {}).get("Env") or []
        return dict(str(each).partition("=")[::2] for each in listed)

    @property
    def user(self) -> str:
        """User of its configuration; empty: root."""
        return str(self.config.get("config", {}).get("User") or "")

    @property
    def platform(self) -> Platform:
        """Platform that the configuration of the image names."""
        return Platform(str(self.config.get("os", "")), str(self.config.get("architecture", "")))

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """Digests of its uncompressed layers, lowest first."""
        return tuple(self.config.get("rootfs", {}).get("diff_ids", ()))


def empty(platform: Platform) -> Image:
    """An image of no layers."""
    config = {"os": platform.os, "architecture": platform.architecture, "config": {},
              "rootfs": {"type": "layers", "diff_ids": []}}  # fmt: skip
    return Image(config=config, layers=())


def extend(image: Image, layers: Sequence[tuple[Descriptor, str]], settings: Settings) -> Image:
    """`image` with `layers` (each with its diff id) on top and `settings` over its own; Docker's words become OCI's."""
    config = {name: value for name, value in image.config.items() if name not in {"history", "created"}}
    diff_ids = [*image.diff_ids, *(diff_id for _, diff_id in layers)]
    config["rootfs"] = {"type": "layers", "diff_ids": diff_ids}
    config["config"] = _apply_settings(dict(image.config.get("config") or {}), image.env, settings)
    below = (
        replace(layer, media_type=_DOCKER_LAYERS.get(layer.media_type, layer.media_type)) for layer in image.layers
    )
    return Image(config=config, layers=(*below, *(each for each, _ in layers)))


def manifest_bytes(image: Image, config: Descriptor) -> bytes:
    """The manifest of `image` as canonical JSON."""
    if not 0 < len(image.layers) <= MAX_LAYERS or len(image.layers) != len(image.diff_ids):
        raise IntegrityError(f"an image has 1 to {MAX_LAYERS} layers, each with its diff id; found {len(image.layers)}")
    plain = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config.to_plain(),
             "layers": [layer.to_plain() for layer in image.layers]}  # fmt: skip
    return canonical(plain)


def parse_manifest(data: bytes) -> tuple[Descriptor, tuple[Descriptor, ...]]:
    """Config and layers of a manifest; raises IntegrityError for anything else."""
    plain = parse(data, "manifest")
    if plain.get("schemaVersion") != 2 or "layers" not in plain:
        raise IntegrityError(f"wanted an image manifest of version 2, found {sorted(plain)[:6]}")
    layers = tuple(descriptor(each) for each in _list(plain, "layers"))
    if not 0 < len(layers) <= MAX_LAYERS:
        raise IntegrityError(f"an image has 1 to {MAX_LAYERS} layers, found {len(layers)}")
    return descriptor(plain.get("config")), layers


def parse_index(data: bytes) -> tuple[Descriptor, ...]:
    """Manifests of an index, in its order."""
    plain = parse(data, "index")
    return tuple(descriptor(each) for each in _list(plain, "manifests"))


def parse(data: bytes, what: str) -> dict[str, Any]:
    """`data` as a JSON object."""
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"wanted an image {what} as JSON, found {data[:40]!r}") from error
    if not isinstance(plain, dict):
        raise IntegrityError(f"wanted an image {what} as a JSON object, found {type(plain).__name__}")
    return plain


def descriptor(plain: Any) -> Descriptor:
    """Raises IntegrityError unless `plain` is one."""
    if not isinstance(plain, dict):
        raise IntegrityError(f"wanted a descriptor, found {plain!r:.80}")
    size, where = plain.get("size"), plain.get("platform")
    if not isinstance(size, int) or isinstance(size, bool):
        raise IntegrityError(f"wanted a descriptor with a size, found {plain!r:.80}")
    platform = Platform(str(where.get("os")), str(where.get("architecture"))) if isinstance(where, dict) else None
    notes = plain.get("annotations")
    return Descriptor(
        media_type=str(plain.get("mediaType")), digest=str(plain.get("digest")), size_bytes=size, platform=platform,
        annotations={str(k): str(v) for k, v in notes.items()} if isinstance(notes, dict) else {},
    )  # fmt: skip


def describe(data: bytes, media_type: str) -> Descriptor:
    """Descriptor of `data`."""
    return Descriptor(media_type=media_type, digest=f"sha256:{sha256(data).hexdigest()}", size_bytes=len(data))


def _apply_settings(config: dict[str, Any], env: dict[str, str], settings: Settings) -> dict[str, Any]:
    changes = {"User": settings.user, "WorkingDir": settings.workdir,
              "Entrypoint": settings.entrypoint, "Cmd": settings.command}  # fmt: skip
    if settings.entrypoint is not None and settings.command is None:
        config.pop("Cmd", None)  # the base's arguments are of the base's program
    config |= {name: list(value) if isinstance(value, tuple) else value for name, value in changes.items() if value}
    if env or settings.env:
        config["Env"] = [f"{name}={value}" for name, value in (env | dict(settings.env)).items()]
    if settings.labels:
        config["Labels"] = (config.get("Labels") or {}) | dict(settings.labels)
    return config


def _list(plain: dict[str, Any], name: str) -> list[Any]:
    found = plain.get(name)
    if not isinstance(found, list):
        raise IntegrityError(f"wanted a list of {name}, found {found!r:.80}")
    return found
