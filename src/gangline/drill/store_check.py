"""Checks of a drilled run's store: listed checkpoints are complete and signed, and their numbers finite."""

from collections.abc import Iterator
from typing import Literal

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.manifest import ListedCheckpoint, RefusedCheckpoint, list_checkpoints
from gangline.checkpoint.format.stored_tensors import stream_tensor
from gangline.storage.objects.protocol import ObjectStore

_EXPONENTS: dict[str, tuple[Literal["Q", "I", "H"], int]] = {
    "F64": ("Q", 0x7FF << 52),
    "F32": ("I", 0xFF << 23),
    "BF16": ("H", 0xFF << 7),
    "F16": ("H", 0x1F << 10),
}
"""dtype -> code of a word in this machine's byte order, and the bits that are all set if a number is not finite."""


def incomplete_checkpoints(store: ObjectStore, prefix: str, key: bytes) -> list[str]:
    """Checkpoints below `prefix` that are listed, but not complete and signed; as sentences."""
    return [problem for found in list_checkpoints(store, prefix) if (problem := _opening_problem(store, found, key))]


def invalid_checkpoints(store: ObjectStore, prefix: str, key: bytes) -> list[str]:
    """Problems of checkpoints below `prefix`; reads every byte: digests must match and all numbers be finite."""
    broken = incomplete_checkpoints(store, prefix, key)
    if broken:
        return broken
    return [problem for found in list_checkpoints(store, prefix) if (problem := _reading_problem(store, found, key))]


def _opening_problem(store: ObjectStore, found: ListedCheckpoint, key: bytes) -> str:
    try:
        CheckpointFolder.open(store, found.prefix, key)
    except RefusedCheckpoint as refused:
        return _unless_deleted(store, found, f"the checkpoint of step {found.step} is listed, but {refused}")
    return ""


def _reading_problem(store: ObjectStore, found: ListedCheckpoint, key: bytes) -> str:
    try:
        bad = next(_not_finite(CheckpointFolder.open(store, found.prefix, key)), "")
    except RefusedCheckpoint as refused:
        return _unless_deleted(store, found, f"the checkpoint of step {found.step} is listed, but {refused}")
    return f"the checkpoint of step {found.step} holds {bad}, which is not finite" if bad else ""


def _unless_deleted(store: ObjectStore, found: ListedCheckpoint, problem: str) -> str:
    """`problem`, unless retention has deleted the checkpoint meanwhile, which it starts with the manifest."""
    return problem if store.head(found.manifest_key) is not None else ""


def _not_finite(folder: CheckpointFolder) -> Iterator[str]:
    for name, tensor in sorted(folder.index().tensors.items()):
        data = b"".join(map(bytes, stream_tensor(folder, name, tensor)))
        if tensor.dtype not in _EXPONENTS:
            continue
        code, exponent = _EXPONENTS[tensor.dtype]
        if any(word & exponent == exponent for word in memoryview(data).cast(code)):
            yield name
