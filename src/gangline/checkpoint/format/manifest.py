"""The signed manifest, which makes a folder of files a checkpoint, and the error that refuses a file of it."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.errors import IntegrityError
from gangline.spec.codec import canonical, from_json
from gangline.storage.objects.protocol import ObjectStore, list_all


class RefusedCheckpoint(IntegrityError):
    """A file of a checkpoint must not be loaded; file and reason are sent from rank to rank."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(file, reason)
        self.file = file
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


FORMAT = "gangline-checkpoint/2"
FILES_FORMAT = "gangline-files/1"
"""Files that a program saved by itself; they are never opened as tensors."""
BLOCK_BYTES = 16 * 2**20
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 2**20
MAX_FILES = 1_000_000

_RUN = re.compile(r"runs/[^/]+/[^/]+/([^/]+)/")
_STEP = re.compile(r"step-(\d{8})")
_FILE = re.compile(r"g\d{4,}-[A-Za-z0-9._-]{1,200}")
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """One file of a checkpoint: its size, and the digest of each block of 16 MiB."""

    size_bytes: int
    blocks: tuple[str, ...]
    """BLAKE3 of each block; SHA-256 in a program's save, where the blake3 package may be missing."""

    def __post_init__(self) -> None:
        wanted = -(-self.size_bytes // BLOCK_BYTES)
        if self.size_bytes < 0 or len(self.blocks) != wanted:
            raise IntegrityError(f"{self.size_bytes} bytes need {wanted} block digests, found {len(self.blocks)}")
        if not all(_HEX.fullmatch(block) for block in self.blocks):
            raise IntegrityError("a digest is 64 lower-case hex digits")

    @property
    def content(self) -> str:
        """SHA-256 over the digests of its blocks, in order."""
        return hashlib.sha256("".join(self.blocks).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The files of one save; every name carries the generation that wrote it."""

    format: str = FORMAT
    run: str
    step: int
    generation: int
    plan_sha256: str
    files: dict[str, FileEntry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format not in (FORMAT, FILES_FORMAT):
            raise IntegrityError(f"wanted format {FORMAT}, found {self.format!r}")
        head = f"g{self.generation:04d}-"
        for name in self.files:
            if not name.startswith(head) or not _FILE.fullmatch(name):
                raise IntegrityError(f"a file of generation {self.generation} is called {head}..., found {name!r}")
        for name in (self.index_name, self.state_name):
            if name not in self.files and self.format == FORMAT:
                raise IntegrityError(f"{name} is not listed")

    @property
    def index_name(self) -> str:
        """File name of the index of this generation."""
        return f"g{self.generation:04d}-index.json"

    @property
    def state_name(self) -> str:
        """File name of the state of this generation."""
        return f"g{self.generation:04d}-state.json"

    @property
    def size_bytes(self) -> int:
        """Bytes of all files that the manifest lists."""
        return sum(entry.size_bytes for entry in self.files.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """Signature over a manifest."""

    algorithm: str
    key_id: str
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """A manifest as it is stored: the signed payload and its signatures."""

    payload: str
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedCheckpoint:
    """A checkpoint in a listing; nothing of it is verified."""

    step: int
    prefix: str

    @property
    def manifest_key(self) -> str:
        """Store key of the manifest."""
        return f"{self.prefix}/{MANIFEST}"


def checkpoint_folder(prefix: str, step: int) -> str:
    """`<prefix>/step-00000200`."""
    return f"{prefix}/step-{step:08d}"


def list_checkpoints(store: ObjectStore, prefix: str) -> list[ListedCheckpoint]:
    """Checkpoints below `prefix` (`<run_prefix>/checkpoints`) that have a manifest, newest first."""
    checkpoints = []
    for entry in list_all(store, f"{prefix}/step-"):
        folder, _, name = entry.key.rpartition("/")
        step = _STEP.fullmatch(folder.removeprefix(f"{prefix}/"))
        if name == MANIFEST and step:
            checkpoints.append(ListedCheckpoint(step=int(step[1]), prefix=folder))
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.step, reverse=True)


def sign_manifest(manifest: Manifest, key: bytes) -> bytes:
    """Bytes of `manifest.json`: the payload under HMAC-SHA256."""
    return sign_payload(canonical(manifest), key)


def sign_payload(payload: bytes, key: bytes) -> bytes:
    """Envelope of a canonical JSON text and its signature."""
    signature = Signature(algorithm="hmac-sha256", key_id=key_id(key), value=_hmac(payload, key))
    return canonical(Envelope(payload=payload.decode(), signatures=(signature,)))


def verify_manifest(raw: bytes, key: bytes) -> Manifest:
    """Check the signature over the payload, then read it.

    Args:
        raw: `manifest.json` as stored.
        key: HMAC key of the project's checkpoints.

    Raises:
        RefusedCheckpoint: The signature is of another key, the manifest was changed, or it is not in canonical form.
    """
    try:
        return from_json(Manifest, verify_payload(raw, key))
    except (IntegrityError, ValueError, RecursionError) as error:
        raise RefusedCheckpoint(MANIFEST, str(error)) from error


def verify_payload(raw: bytes, key: bytes) -> bytes:
    """The payload of an envelope.

    Raises:
        IntegrityError: It has another form, was changed, or was signed by another key.
    """
    envelope = _read_envelope(raw)
    payload = envelope.payload.encode()
    _check_hmac(payload, key, {signature.algorithm: signature for signature in envelope.signatures})
    return payload


def read_manifest(store: ObjectStore, checkpoint_prefix: str, key: bytes, *, sha256: str | None = None) -> Manifest:
    """Read and verify the manifest of one checkpoint folder.

    Args:
        checkpoint_prefix: `.../step-00000200`; below `runs/` the run in the path must be the manifest's.
        key: HMAC key of the checkpoints.
        sha256: Of the manifest's file, if a record names it.

    Raises:
        RefusedCheckpoint: It is missing, too big, of another key, run or step, or not the one that the record names.
    """
    name = f"{checkpoint_prefix}/{MANIFEST}"
    blob = store.get(name, 0, MAX_MANIFEST_BYTES + 1)
    if blob is None:
        raise RefusedCheckpoint(
            MANIFEST, f"wanted {name}, found nothing; only a folder with a manifest is a checkpoint"
        )
    manifest = verify_manifest(blob.data, key)
    _check_place(manifest, checkpoint_prefix)
    if sha256 is not None and (found := hashlib.sha256(blob.data).hexdigest()) != sha256:
        raise RefusedCheckpoint(
            MANIFEST, f"wanted {sha256[:12]}, as the record says, found {found[:12]}: it was written again"
        )
    return manifest


def _check_place(manifest: Manifest, checkpoint_prefix: str) -> None:
    """Require that the folder is that of the manifest's run and step."""
    step = _STEP.fullmatch(checkpoint_prefix.rpartition("/")[2])
    if step and int(step[1]) != manifest.step:
        raise RefusedCheckpoint(MANIFEST, f"it was written for step {manifest.step}, found in {checkpoint_prefix}")
    run = _RUN.match(checkpoint_prefix)
    if run and run[1] != manifest.run:
        raise RefusedCheckpoint(MANIFEST, f"it is a checkpoint of {manifest.run}, found in {checkpoint_prefix}")


def check_sizes(store: ObjectStore, checkpoint_prefix: str, manifest: Manifest) -> None:
    """Compare all sizes with the manifest by one listing; `RefusedCheckpoint` names the first difference."""
    sizes = {entry.key: entry.size_bytes for entry in list_all(store, f"{checkpoint_prefix}/")}
    for name, entry in sorted(manifest.files.items()):
        size = sizes.get(f"{checkpoint_prefix}/{name}")
        if size is None:
            raise RefusedCheckpoint(
                name, f"the manifest lists it with {entry.size_bytes} bytes, the store has no such file"
            )
        if size != entry.size_bytes:
            raise RefusedCheckpoint(name, f"wanted {entry.size_bytes} bytes, found {size}")


def key_id(key: bytes) -> str:
    """Public id of a key: 16 hex digits of its hash."""
    return hashlib.sha256(b"gangline-key-id\0" + key).hexdigest()[:16]


def _read_envelope(raw: bytes) -> Envelope:
    if len(raw) > MAX_MANIFEST_BYTES:
        raise IntegrityError(f"wanted at most {MAX_MANIFEST_BYTES} bytes, found more")
    if raw.count(b"[") + raw.count(b"{") > MAX_FILES:
        raise IntegrityError("more nested values than any manifest has")
    envelope = from_json(Envelope, raw)
    if canonical(envelope) != raw:
        raise IntegrityError("it does not have the one form that is written: it was edited or damaged")
    return envelope


def _hmac(payload: bytes, key: bytes) -> str:
    return hmac.new(key, payload, hashlib.sha256).hexdigest()


def _check_hmac(payload: bytes, key: bytes, signatures: Mapping[str, Signature]) -> None:
    signature = signatures.get("hmac-sha256")
    if signature is None:
        raise IntegrityError(f"wanted an hmac-sha256 signature, found {sorted(signatures) or 'none'}")
    if signature.key_id != key_id(key):
        raise IntegrityError(f"signed by key {signature.key_id}, wanted key {key_id(key)} of this project")
    if not hmac.compare_digest(signature.value.encode(), _hmac(payload, key).encode()):
        raise IntegrityError("the signature does not fit the payload: it was changed after it was written")
