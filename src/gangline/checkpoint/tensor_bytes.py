"""Tensors as bytes: dtypes by their safetensors names, views, and blocks joined by torch while training continues."""

from collections.abc import Iterable, Iterator
from itertools import cycle

import torch
from torch import Tensor

from gangline.checkpoint.format.manifest import BLOCK_BYTES

DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "U16": torch.uint16, "I16": torch.int16, "F16": torch.float16,
    "BF16": torch.bfloat16, "U32": torch.uint32, "I32": torch.int32, "F32": torch.float32, "U64": torch.uint64,
    "I64": torch.int64, "F64": torch.float64, "C64": torch.complex64,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def as_bytes(tensor: Tensor) -> memoryview:
    """Row-major bytes of a CPU tensor; a view where it is contiguous."""
    return flat_bytes(tensor).numpy().data


def flat_bytes(tensor: Tensor) -> Tensor:
    """The same as a tensor of uint8."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def writable(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, to be written to."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def in_blocks(pieces: Iterable[Tensor]) -> Iterator[memoryview]:
    """The bytes of `pieces`, flat tensors of uint8, in blocks of 16 MiB; a block that lies in one piece is not copied.

    A block is good until the one after the next is asked for.
    """
    buffers = cycle(torch.empty((2, BLOCK_BYTES), dtype=torch.uint8))
    buffer, filled = next(buffers), 0
    for piece in pieces:
        start = 0
        while len(piece) - start >= BLOCK_BYTES - filled:
            end = start + BLOCK_BYTES - filled
            yield as_bytes(_append(buffer, filled, piece[start:end]) if filled else piece[start:end])
            buffer, filled, start = next(buffers), 0, end
        filled = len(_append(buffer, filled, piece[start:]))
    if filled:
        yield as_bytes(buffer[:filled])


def _append(buffer: Tensor, filled: int, piece: Tensor) -> Tensor:
    """What of `buffer` is full then."""
    end = filled + len(piece)
    buffer[filled:end].copy_(piece)
    return buffer[:end]
