"""Tensors in host memory: reused staging buffers, dtypes by their safetensors names, and tensors as bytes in blocks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
    """Bytes of a tensor, as a flat tensor of uint8."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def writable(tensor: Tensor) -> memoryview:
    """Writable bytes of a contiguous CPU tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def in_blocks(pieces: Iterable[Tensor]) -> Iterator[memoryview]:
    """Bytes of `pieces`, flat tensors of uint8, in blocks of 16 MiB; a block within one piece is not copied.

    A block is valid until the second next one is requested.
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
    """Copy `piece` behind the first `filled` bytes of `buffer`; the filled part."""
    end = filled + len(piece)
    buffer[filled:end].copy_(piece)
    return buffer[:end]


@dataclass(frozen=True, slots=True)
class StagedTensor:
    """This rank's chunk of one tensor, copied to the host."""

    local: Tensor
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    offsets: tuple[int, ...]
    """Offsets of the chunk in the whole tensor."""


class Staging:
    """A set of host buffers that is reused from save to save, pinned if the tensors come from a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    @torch.no_grad()
    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, StagedTensor]:
        """Copy this rank's chunks; the originals may change once it has returned.

        The copies are valid until the next call.
        """
        staged = {}
        for name, tensor in tensors.items():
            local, offsets = local_chunk(tensor)
            buffer = self._buffer(name, local)
            buffer.copy_(local, non_blocking=True)
            staged[name] = StagedTensor(buffer, tuple(tensor.size()), offsets)
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.current_stream().synchronize()
        for name in self._buffers.keys() - tensors.keys():
            del self._buffers[name]
        return staged

    def _buffer(self, name: str, local: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != local.shape or buffer.dtype != local.dtype:
            buffer = torch.empty(local.shape, dtype=local.dtype, device="cpu", pin_memory=local.is_cuda)
            self._buffers[name] = buffer
        return buffer


def local_chunk(tensor: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """This rank's part of a plain or distributed tensor, and its offsets in the whole."""
    from torch.distributed.tensor import DTensor  # imports sympy, which a process with plain tensors goes without

    if not isinstance(tensor, DTensor):
        return tensor, (0,) * tensor.dim()
    [chunk] = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]  # torch's planning hook, untyped
    return tensor.to_local(), tuple(chunk.offsets)
