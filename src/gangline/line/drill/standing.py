"""What stands in the store of a drilled run: whole, signed checkpoints alone, and finite where that was at stake."""

from collections.abc import Iterator
from typing import Literal

from gangline.checkpoint.envelope import Found, list_checkpoints
from gangline.checkpoint.folder import CheckpointFolder
from gangline.checkpoint.refused import Refused
from gangline.checkpoint.stored import stream_tensor
from gangline.storage.protocol import ObjectStore

_EXPONENTS: dict[str, tuple[Literal["Q", "I", "H"], int]] = {
    "F64": ("Q", 0x7FF << 52),
    "F32": ("I", 0xFF << 23),
    "BF16": ("H", 0xFF << 7),
    "F16": ("H", 0x1F << 10),
}
"""Of a word in this machine's order, by dtype: its code, and the bits that are all set where a number is not finite."""


def half_listed(store: ObjectStore, prefix: str, key: bytes) -> list[str]:
    """Checkpoints below `prefix` that are listed, but not signed and complete; as sentences."""
    return [said for found in list_checkpoints(store, prefix) if (said := _opening_fails(store, found, key))]


def unsound(store: ObjectStore, prefix: str, key: bytes) -> list[str]:
    """As `half_listed`, and every byte is read: its digest fits, and no floating number is infinite or none at all."""
    broken = half_listed(store, prefix, key)
    if broken:
        return broken
    return [said for found in list_checkpoints(store, prefix) if (said := _reading_fails(store, found, key))]


def _opening_fails(store: ObjectStore, found: Found, key: bytes) -> str:
    try:
        CheckpointFolder.open(store, found.prefix, key)
    except Refused as refused:
        return _still_listed(store, found, f"the checkpoint of step {found.step} is listed, but {refused}")
    return ""


def _reading_fails(store: ObjectStore, found: Found, key: bytes) -> str:
    try:
        bad = next(_not_finite(CheckpointFolder.open(store, found.prefix, key)), "")
    except Refused as refused:
        return _still_listed(store, found, f"the checkpoint of step {found.step} is listed, but {refused}")
    return f"the checkpoint of step {found.step} holds {bad}, which is not finite" if bad else ""


def _still_listed(store: ObjectStore, found: Found, said: str) -> str:
    """Retention takes the manifest first: what went meanwhile was not half."""
    return said if store.head(found.manifest_key) is not None else ""


def _not_finite(folder: CheckpointFolder) -> Iterator[str]:
    for name, tensor in sorted(folder.index().tensors.items()):
        data = b"".join(map(bytes, stream_tensor(folder, name, tensor)))
        if tensor.dtype not in _EXPONENTS:
            continue
        code, exponent = _EXPONENTS[tensor.dtype]
        if any(word & exponent == exponent for word in memoryview(data).cast(code)):
            yield name
