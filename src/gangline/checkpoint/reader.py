"""torch's distributed checkpoint, read from a verified folder: its metadata rebuilt from our index, no pickle."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
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
from gangline.checkpoint.index import Index, StoredTensor
from gangline.checkpoint.tensors import tensor_bytes
from gangline.checkpoint.torch_types import DTYPES, fill_bytes


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
        by_file: dict[str, list[_Read]] = defaultdict(list)
        for item in plan.items:
            read = self._locate(item)
            by_file[read.file].append(read)
        for name, reads in sorted(by_file.items()):
            reads.sort(key=lambda read: read.start)
            with self._folder.file(name).ahead((read.start, read.size) for read in reads) as file:
                for read in reads:
                    target = planner.resolve_tensor(read.item).detach()
                    _fill(target, read, file.pieces(read.start, read.size))
                    planner.commit_tensor(read.item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:  # noqa: ARG003 - the interface's
        """Folders are named by step, never by torch's id."""
        return False

    def _locate(self, item: ReadItem) -> "_Read":
        """Bytes of the rows that `item` needs; its other dims are cut out of them."""
        name, offsets = item.storage_index.fqn, tuple(item.storage_index.offset or ())
        tensor = self._index.tensors[name]
        chunk = next(each for each in tensor.chunks if each.offsets == offsets)
        entry = self._folder.locate(name, tensor, chunk)
        rows = item.lengths[0] if chunk.sizes else 1
        row_bytes = tensor_bytes(tensor.dtype, chunk.sizes[1:])
        skipped = item.storage_offsets[0] if chunk.sizes else 0
        shape = (rows, *chunk.sizes[1:]) if chunk.sizes else ()
        return _Read(chunk.file, entry.start + skipped * row_bytes, rows * row_bytes, shape, item)


@dataclass(frozen=True, slots=True)
class _Read:
    """Consecutive rows of one chunk, and the item whose box lies in them."""

    file: str
    start: int
    size: int
    shape: tuple[int, ...]
    item: ReadItem


def _fill(target: Tensor, read: _Read, pieces: Iterable[memoryview]) -> None:
    """Copy verified bytes into `target`: straight where they are all of it, else by a host copy of the rows."""
    if read.size == 0:
        return
    if target.is_contiguous() and target.device.type == "cpu" and tuple(read.item.lengths) == read.shape:
        fill_bytes(target, pieces)
        return
    rows = torch.empty(read.shape, dtype=target.dtype)
    fill_bytes(rows, pieces)
    for dim in range(1, len(read.shape)):
        rows = rows.narrow(dim, read.item.storage_offsets[dim], read.item.lengths[dim])
    target.copy_(rows)


def _metadata(tensor: StoredTensor) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(each.offsets), torch.Size(each.sizes)) for each in tensor.chunks]
    return TensorStorageMetadata(TensorProperties(dtype=DTYPES[tensor.dtype]), torch.Size(tensor.shape), chunks)
