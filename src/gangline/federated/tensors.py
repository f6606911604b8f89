"""Tensors of a round as bytes and back: float32 in the safetensors format, and nothing that could be code."""

import numpy as np

from gangline.checkpoint.format.safetensors import header_bytes, header_length, parse_header
from gangline.errors import IntegrityError
from gangline.federated.protocol import Tensors

_DTYPE = "F32"
_HEADER_BYTES = 4096
"""Most bytes of a header beyond those of names and shapes of its tensors, each tensor counted."""


def pack_tensors(tensors: Tensors) -> bytes:
    """One safetensors file, its tensors sorted by name: equal tensors are equal bytes."""
    arrays = {name: np.asarray(tensors[name], dtype="<f4", order="C") for name in sorted(tensors)}
    head = header_bytes({name: (_DTYPE, each.shape) for name, each in arrays.items()})
    return b"".join((head, *(each.tobytes() for each in arrays.values())))


def most_bytes(tensors: Tensors) -> int:
    """Most bytes that a file of tensors with these names and shapes may have."""
    return sum(each.nbytes + len(name.encode()) + _HEADER_BYTES for name, each in tensors.items()) + _HEADER_BYTES


def unpack_tensors(data: bytes) -> Tensors:
    """The tensors of such a file, as copies.

    Raises:
        IntegrityError: It is something else, or holds another dtype.
    """
    entries = parse_header(data[: header_length(data[:8], len(data))], len(data))
    other = sorted({entry.dtype for entry in entries.values()} - {_DTYPE})
    if other:
        raise IntegrityError(f"wanted tensors of {_DTYPE} alone, found {', '.join(other)}")
    return {
        name: np.frombuffer(data, "<f4", (entry.end - entry.start) // 4, entry.start).reshape(entry.shape).copy()
        for name, entry in entries.items()
    }
