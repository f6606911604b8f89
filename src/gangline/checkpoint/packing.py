"""Tensors put together into blocks by torch, which lets training go on meanwhile; joining bytes in Python does not."""

from collections.abc import Iterable, Iterator
from itertools import cycle

import torch
from torch import Tensor

from gangline.checkpoint.envelope import BLOCK_BYTES
from gangline.checkpoint.torch_types import as_bytes


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
