"""An opened checkpoint folder: the manifest is verified, sizes are checked, and every read is verified. No torch."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from gangline.checkpoint.format.blocks import BlockCache, VerifiedFile
from gangline.checkpoint.format.index import Chunk, Index, StoredTensor, chunk_key
from gangline.checkpoint.format.manifest import (
    FORMAT,
    MANIFEST,
    Manifest,
    RefusedCheckpoint,
    check_sizes,
    read_manifest,
)
from gangline.checkpoint.format.safetensors import TensorEntry, header_length, parse_header
from gangline.errors import IntegrityError
from gangline.spec.codec import from_json
from gangline.storage.objects.protocol import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointState:
    """Everything but tensors: `g<generation>-state.json`."""

    step: int
    optimizer: dict[str, Any] = field(default_factory=dict)
    """`param_groups.<name>.<key>` and `state.<name>.<key>`."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """The caller's, equal on all ranks."""
    ranks: tuple[dict[str, Any], ...] = ()
    """The caller's, by rank; empty if it passed none."""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass
class CheckpointFolder:
    """Verified access to the files of one manifest; every fault raises `RefusedCheckpoint` with the file's name."""

    store: ObjectStore
    prefix: str
    manifest: Manifest
    _cache: BlockCache = field(default_factory=BlockCache)
    _headers: dict[str, dict[str, TensorEntry]] = field(default_factory=dict)

    @staticmethod
    def open(
        store: ObjectStore, prefix: str, key: bytes, *, whole: bool = True, sha256: str | None = None
    ) -> "CheckpointFolder":
        """Verify the signature, then the sizes of all files.

        Args:
            prefix: Folder of the checkpoint, `.../step-00000200`.
            whole: All files must be there; else some may be missing, and those that are read are verified.
            sha256: Of the manifest that is expected, if a record names it.
        """
        manifest = read_manifest(store, prefix, key, sha256=sha256)
        if manifest.format != FORMAT:
            raise RefusedCheckpoint(
                MANIFEST, f"wanted {FORMAT}, found {manifest.format}: it holds files of a program, not tensors"
            )
        if whole:
            check_sizes(store, prefix, manifest)
        return CheckpointFolder(store, prefix, manifest)

    def index(self) -> Index:
        """Read and verify the index of tensors."""
        return self._read_json(Index, self.manifest.index_name)

    def state(self) -> CheckpointState:
        """Read and verify the numbers of the training and of its ranks."""
        return self._read_json(CheckpointState, self.manifest.state_name)

    def file(self, name: str) -> VerifiedFile:
        """Reader of a file that the manifest lists; `RefusedCheckpoint` for any other name."""
        if name not in self.manifest.files:
            raise RefusedCheckpoint(self.manifest.index_name, f"it points to {name}, which the manifest does not list")
        return VerifiedFile(self.store, self.prefix, name, self.manifest.files[name], self._cache)

    def locate(self, name: str, tensor: StoredTensor, chunk: Chunk) -> TensorEntry:
        """Location of the bytes of `chunk` in its file, by the file's own header, which must agree with the index."""
        entry = self._header(chunk.file).get(chunk_key(name, chunk.offsets))
        if entry is None:
            raise RefusedCheckpoint(
                chunk.file, f"the index expects {chunk_key(name, chunk.offsets)} here, the header has none"
            )
        if entry.dtype != tensor.dtype or entry.shape != chunk.sizes:
            raise RefusedCheckpoint(
                chunk.file,
                f"{name}: the index says {tensor.dtype} {chunk.sizes}, the header {entry.dtype} {entry.shape}",
            )
        return entry

    def _header(self, name: str) -> dict[str, TensorEntry]:
        if name not in self._headers:
            file = self.file(name)
            try:
                length = header_length(file.read(0, min(8, file.entry.size_bytes)), file.entry.size_bytes)
                self._headers[name] = parse_header(file.read(0, length), file.entry.size_bytes)
            except RefusedCheckpoint:
                raise
            except IntegrityError as error:
                raise RefusedCheckpoint(name, str(error)) from error
        return self._headers[name]

    def _read_json(self, kind: type[T], name: str) -> T:
        file = self.file(name)
        text = file.read(0, file.entry.size_bytes)
        try:
            return from_json(kind, text)
        except (IntegrityError, RecursionError) as error:
            raise RefusedCheckpoint(name, str(error)) from error
