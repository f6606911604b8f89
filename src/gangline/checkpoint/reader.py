"""torch's distributed checkpoint, read from a verified folder: its metadata rebuilt from our index, no pickle."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from gangline.checkpoint.folder import CheckpointFolder
from gangline.checkpoint.index import Chunk, Index, StoredTensor
from gangline.checkpoint.torch_types import DTYPES


class CheckpointReader(StorageReader):
    """Reads what one rank needs, file by file in the order of bytes; every block is verified before it is copied."""

    def __init__(self, folder: CheckpointFolder, index: Index) -> None:
        self._folder = folder
        self._index = index

    def reset(self, checkpoint_id: object = None) -> None:
        """Nothing to forget: a reader serves one load."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002 - the interface's
        return Metadata({name: _metadata(tensor) for name, tensor in self._index.tensors.items()})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to prepare: the folder was opened before."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[tuple[int, ReadItem, StoredTensor, Chunk]]] = defaultdict(list)
        for item in plan.items:
            tensor = self._index.tensors[item.storage_index.fqn]
            chunk = next(each for each in tensor.chunks if each.offsets == tuple(item.storage_index.offset or ()))
            start = self._folder.locate(item.storage_index.fqn, tensor, chunk).start
            by_file[chunk.file].append((start, item, tensor, chunk))
        for _, reads in sorted(by_file.items()):
            for start, item, tensor, chunk in sorted(reads, key=lambda read: read[0]):
                target = planner.resolve_tensor(item).detach()
                target.copy_(self._read(start, item, tensor, chunk))
                planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:  # noqa: ARG003 - the interface's
        """Folders are named by step, never by torch's id."""
        return False

    def _read(self, start: int, item: ReadItem, tensor: StoredTensor, chunk: Chunk) -> Tensor:
        """The box of `item`: only its rows are read, its other dims are cut out of them."""
        dtype = DTYPES[tensor.dtype]
        first, rows = (item.storage_offsets[0], item.lengths[0]) if chunk.sizes else (0, 1)
        row_shape = chunk.sizes[1:]
        row_bytes = torch.Size(row_shape).numel() * dtype.itemsize
        size = rows * row_bytes
        if size == 0:
            return torch.empty(item.lengths, dtype=dtype)
        buffer = _joined(self._folder.file(chunk.file).pieces(start + first * row_bytes, size), size)
        whole = torch.frombuffer(buffer, dtype=dtype).reshape((rows, *row_shape) if chunk.sizes else ())
        for dim in range(1, len(chunk.sizes)):
            whole = whole.narrow(dim, item.storage_offsets[dim], item.lengths[dim])
        return whole


def _joined(pieces: Iterable[memoryview], size: int) -> bytearray:
    buffer = bytearray(size)
    at = 0
    for piece in pieces:
        buffer[at : at + len(piece)] = piece
        at += len(piece)
    return buffer


def _metadata(tensor: StoredTensor) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(each.offsets), torch.Size(each.sizes)) for each in tensor.chunks]
    return TensorStorageMetadata(TensorProperties(dtype=DTYPES[tensor.dtype]), torch.Size(tensor.shape), chunks)
