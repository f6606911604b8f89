"""Data types of the registry, and the keys below `models/` in the store."""

from dataclasses import dataclass, field
from typing import Any

from gangline.spec.codec import Document
from gangline.spec.record import Artifact


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """One thing that was verified."""

    name: str
    ok: bool
    text: str
    """What was found; of a failed check also what was wanted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """One object of a version, by digest."""

    path: str
    """Relative to the model folder."""
    key: str
    """In the store."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Version(Document):
    """`models/<model>/<version>.json`: written once, never changed; the git tag holds its digest."""

    schema: int = 1
    model: str
    version: int
    run: str
    project: str
    commit: str
    record: str
    """Store prefix of the run."""
    checkpoint: str
    """Prefix of it; of a program the folder of its save, or the list of its outputs."""
    plan: str
    """Digest."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Digests of line, code, environment, data; seeds."""
    weights: str
    """Digest over path and SHA-256 of the weight files: the same weights, the same version."""
    files: tuple[ModelFile, ...]
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    key_id: str
    """Of the key behind `model.sig`."""
    created: str
    """UTC, when the run was born: a retry writes the same bytes."""

    @property
    def key(self) -> str:
        return version_key(self.model, self.version)

    @property
    def of_program(self) -> bool:
        """Its weights are files that a program wrote, in formats of its own."""
        return "/checkpoints/" not in self.checkpoint

    @property
    def origin_key(self) -> str:
        """The signed manifest, or the list, that its weights come from."""
        return self.checkpoint if self.checkpoint.endswith(".json") else f"{self.checkpoint}/manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Alias(Document):
    """`models/<model>/aliases/<alias>.json`: which version an alias means; moved by compare-and-set alone."""

    schema: int = 1
    model: str
    alias: str
    version: int
    version_digest: str
    """SHA-256 of `<version>.json`, so that the alias vouches for its bytes."""
    generation: int
    """+1 a promotion; two promotions never share one."""
    previous: int | None = None
    who: str
    because: str
    time: str
    nonce: str
    """Random: an unknown answer is settled by reading it back."""
    key_id: str
    signature: str = ""
    """Elliptic signature, base64, over this file with an empty signature."""

    @property
    def key(self) -> str:
        return alias_key(self.model, self.alias)


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A version that is there, made now or by an earlier try of the same run."""

    model: str
    version: int
    key: str
    """`models/<model>/<version>.json`."""
    files: tuple[ModelFile, ...]
    key_id: str
    weights: str
    smoke: str | None = None
    """What a fresh process answered; None where the line asks for no smoke test."""
    tagged: str | None = None
    """Git tag, once it is in this repository."""
    events: tuple[str, ...] = ()
    """Sentences for the record, e.g. a tag that could not be pushed."""
    artifacts: tuple[Artifact, ...] = ()
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NotPublished:
    """The line does not publish this run; no failure."""

    reason: str


def version_key(model: str, version: int) -> str:
    return f"models/{model}/{version}.json"


def owner_key(model: str) -> str:
    return f"models/{model}/project.json"


def alias_key(model: str, alias: str) -> str:
    return f"models/{model}/aliases/{alias}.json"


def tag_name(model: str, version: int) -> str:
    return f"model/{model}/v{version}"
