"""Host copies of a rank's tensors, in buffers that are reused from save to save: one set, however many saves."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from gangline.checkpoint.planners import StagedTensor


class Staging:
    """One set of host buffers, pinned where the tensors come from a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    @property
    def size_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._buffers.values())

    @torch.no_grad()
    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, StagedTensor]:
        """Copy this rank's chunks; returns when they are on the host, so training may go on writing to the originals.

        The copies stay valid until the next call.
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
        held = self._buffers.get(name)
        if held is None or held.shape != local.shape or held.dtype != local.dtype:
            held = torch.empty(local.shape, dtype=local.dtype, device="cpu", pin_memory=local.is_cuda)
            self._buffers[name] = held
        return held


def local_chunk(tensor: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """This rank's part of a plain or distributed tensor, and its offsets in the whole."""
    if not isinstance(tensor, DTensor):
        return tensor, (0,) * tensor.dim()
    [chunk] = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]  # torch's planning hook, untyped
    return tensor.to_local(), tuple(chunk.offsets)
