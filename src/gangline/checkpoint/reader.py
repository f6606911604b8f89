"""Reader of torch's distributed checkpoint over a verified folder; its metadata is rebuilt from our index."""

from collections import defaultdict
from collections.abc import Iterator
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

from gangline.checkpoint.format.block_reads import ReadTarget, fill
from gangline.checkpoint.format.derived_index import DerivedChunk
from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.index import Chunk, Index, StoredTensor
from gangline.checkpoint.format.safetensors import tensor_bytes
from gangline.checkpoint.host_tensors import DTYPES, writable

_SCRATCH_BYTES = 256 * 2**20
"""Bytes of host copies held at a time; a larger one is read alone."""


class CheckpointReader(StorageReader):
    """Reads what one rank needs, file by file in the order of bytes; every block is verified."""

    def __init__(self, folder: CheckpointFolder, index: Index) -> None:
        self._folder = folder
        self._index = index
        self._chunks: dict[str, dict[tuple[int, ...], Chunk]] = {}

    def reset(self, checkpoint_id: object = None) -> None:
        """Nothing to do: a reader serves one load."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002 - the interface's
        """Names, dtypes and shapes by the index."""
        return Metadata({name: _metadata(tensor) for name, tensor in self._index.tensors.items()})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: the folder is open."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read and verify the chunks of `plan` into the planner's tensors; done when it returns."""
        by_file: dict[str, list[_Read]] = defaultdict(list)
        for item in plan.items:
            read = self._locate(item, planner.resolve_tensor(item).detach())
            by_file[read.file].append(read)
        for name, reads in sorted(by_file.items()):
            for batch in _batches(sorted(reads, key=lambda read: read.start)):
                self._read_batch(name, batch)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:  # noqa: ARG003 - the interface's
        """Folders are named by step, never by torch's id."""
        return False

    def _locate(self, item: ReadItem, target: Tensor) -> "_Read":
        """Location of the rows that `item` needs; its other dims are cut out of them."""
        name, offsets = item.storage_index.fqn, tuple(item.storage_index.offset or ())
        tensor = self._index.tensors[name]
        if name not in self._chunks:
            self._chunks[name] = {each.offsets: each for each in self._index.tensors[name].chunks}
        chunk = self._chunks[name][offsets]
        start = self._start(name, tensor, chunk)
        stride = chunk.stride if isinstance(chunk, DerivedChunk) else 1
        rows = (item.lengths[0] - 1) * stride + 1 if chunk.sizes else 1
        row_bytes = tensor_bytes(tensor.dtype, chunk.sizes[1:])
        skipped = item.storage_offsets[0] if chunk.sizes else 0
        shape = (rows, *chunk.sizes[1:]) if chunk.sizes else ()
        return _Read(chunk.file, start + skipped * stride * row_bytes, rows * row_bytes, shape, item, target, stride)

    def _start(self, name: str, tensor: StoredTensor, chunk: Chunk) -> int:
        """Position in its file of the first byte of `chunk`."""
        if not isinstance(chunk, DerivedChunk):
            return self._folder.locate(name, tensor, chunk).start
        return self._folder.locate(chunk.name, tensor, chunk.of).start + tensor_bytes(tensor.dtype, (chunk.first,))

    def _read_batch(self, name: str, batch: list["_Read"]) -> None:
        rows = [each.target if each.is_direct else torch.empty(each.shape, dtype=each.target.dtype) for each in batch]
        fill(
            self._folder.file(name),
            [ReadTarget(read.start, writable(part)) for read, part in zip(batch, rows, strict=True)],
        )
        for read, part in zip(batch, rows, strict=True):
            if not read.is_direct:
                read.target.copy_(read.cut(part))


@dataclass(frozen=True, slots=True)
class _Read:
    """Consecutive rows of one chunk, the item whose box is in every so many of them, and the target of that box."""

    file: str
    start: int
    size: int
    shape: tuple[int, ...]
    item: ReadItem
    target: Tensor
    stride: int

    @property
    def is_direct(self) -> bool:
        """Whether the target is exactly these rows, so that they can be read into it."""
        return (
            self.target.is_contiguous() and self.target.device.type == "cpu" and tuple(self.item.lengths) == self.shape
        )

    def cut(self, rows: Tensor) -> Tensor:
        rows = rows[:: self.stride] if self.stride > 1 else rows
        for dim in range(1, len(self.shape)):
            rows = rows.narrow(dim, self.item.storage_offsets[dim], self.item.lengths[dim])
        return rows


def _batches(reads: list[_Read]) -> Iterator[list[_Read]]:
    """Batches of reads that do not overlap and whose host copies fit the limit."""
    batch: list[_Read] = []
    end = scratch = 0
    for read in reads:
        if read.size == 0:
            continue
        copied = 0 if read.is_direct else read.size
        if batch and (read.start < end or scratch + copied > _SCRATCH_BYTES):
            yield batch
            batch, scratch = [], 0
        batch.append(read)
        end, scratch = read.start + read.size, scratch + copied
    if batch:
        yield batch


def _metadata(tensor: StoredTensor) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(chunk.offsets), torch.Size(chunk.sizes)) for chunk in tensor.chunks]
    return TensorStorageMetadata(TensorProperties(dtype=DTYPES[tensor.dtype]), torch.Size(tensor.shape), chunks)
