"""Calls of torch's distributed checkpoint, and planners for it that write and read tensors only and convert nothing.

torch plans who writes a replica and which chunks overlap. `CheckpointException` is a `BaseException`, which
`except Exception` does not catch: this module alone catches it and raises an error of `gangline.errors`.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter

from gangline.checkpoint.format.manifest import RefusedCheckpoint
from gangline.checkpoint.host_tensors import StagedTensor
from gangline.checkpoint.peers import Peers
from gangline.errors import GanglineError, IntegrityError, StorageError, TrainingError

_SINGLE_PROCESS = "torch.distributed is disabled, unavailable or uninitialized"


def save(state: dict[str, Any], *, writer: StorageWriter, planner: SavePlanner, peers: Peers) -> None:
    """Plan, deduplicate and write on all ranks; raises the same `GanglineError` on all."""
    with _own_errors(peers):
        state_dict_saver.save(
            state, storage_writer=writer, planner=planner, process_group=peers.group, no_dist=peers.alone
        )


def load(state: dict[str, Any], *, reader: StorageReader, planner: LoadPlanner, peers: Peers) -> None:
    """Plan and read into the tensors of `state`, in place; raises the same `GanglineError` on all ranks."""
    with _own_errors(peers):
        state_dict_loader.load(
            state, storage_reader=reader, planner=planner, process_group=peers.group, no_dist=peers.alone
        )


@contextmanager
def _own_errors(peers: Peers) -> Iterator[None]:
    if peers.alone:
        warnings.filterwarnings("ignore", message=_SINGLE_PROCESS, category=UserWarning)
    try:
        yield
    except CheckpointException as error:
        raise _first_error(error) from error


def _first_error(error: CheckpointException) -> GanglineError:
    """The error to raise: damage and stale generations before an unavailable store, then the lowest rank."""
    errors = [_translate(rank, wrapped[0]) for rank, wrapped in sorted(error.failures.items())]
    return min(errors, key=lambda each: 0 if isinstance(each, IntegrityError) else 1 + isinstance(each, StorageError))


def _translate(rank: int, error: BaseException) -> GanglineError:
    if isinstance(error, GanglineError):
        return error
    if isinstance(error, CheckpointException):
        return _first_error(error)
    if isinstance(error, OSError):
        return StorageError(f"rank {rank}: {error}")
    return TrainingError(f"rank {rank}: {type(error).__name__}: {error}")


class StagedSavePlanner(DefaultSavePlanner):
    """Plans a dictionary of `StagedTensor`; sends each rank's numbers to the coordinator."""

    def __init__(self, rank_numbers: dict[str, Any] | None) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._rank_numbers = rank_numbers
        self.numbers_by_rank: tuple[dict[str, Any], ...] = ()
        """Numbers of all ranks, on the coordinator after planning; empty if no rank passed any."""

    def create_local_plan(self) -> SavePlan:
        """Plan to write this rank's chunks; carries the rank's numbers to the coordinator."""
        items = [_write_item(name, staged) for name, staged in self.state_dict.items()]
        self.plan = SavePlan([item for item in items if item is not None], planner_data=self._rank_numbers)
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Collect the numbers of all ranks, and write each tensor once; runs on the coordinator."""
        numbers = [plan.planner_data for plan in all_plans]
        self.numbers_by_rank = tuple(number or {} for number in numbers) if any(numbers) else ()
        return super().create_global_plan(list(_numbers_once(all_plans)))

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        """The host copy of a chunk."""
        staged: StagedTensor = self.state_dict[write_item.index.fqn]
        return staged.local


class StrictLoadPlanner(DefaultLoadPlanner):
    """Fills the tensors of the state in place; refuses a tensor that is missing or would have to be converted."""

    def __init__(self, file: str, misfit: Callable[[str, str], GanglineError] = RefusedCheckpoint) -> None:
        """`misfit`: the error of a tensor that is another one than that of `file`."""
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._file, self._misfit = file, misfit

    def create_local_plan(self) -> LoadPlan:
        """Check every tensor against the checkpoint, then plan the reads of this rank."""
        assert self.metadata is not None
        saved = self.metadata.state_dict_metadata
        for name, tensor in self.state_dict.items():
            if text := _difference(name, tensor, saved.get(name)):
                raise self._misfit(self._file, text)
        return super().create_local_plan()

    def load_bytes(self, read_item: ReadItem, value: object) -> None:  # noqa: ARG002 - the interface's
        """Refuse the item: checkpoints hold tensors only."""
        raise RefusedCheckpoint(self._file, f"{read_item.dest_index.fqn} is stored as bytes; checkpoints hold tensors")


def _numbers_once(plans: list[SavePlan]) -> Iterator[SavePlan]:
    """Write tensors of one element, such as step counters of optimizers, on the first rank that has them.

    torch spreads replicas over the ranks; but every rank reads all counters, which is faster from one file.
    """
    seen: set[MetadataIndex] = set()
    for plan in plans:
        items = [item for item in plan.items if item.index not in seen]
        seen.update(item.index for item in items if item.tensor_data and item.tensor_data.chunk.sizes.numel() == 1)
        yield replace(plan, items=items, planner_data=None)


def _write_item(name: str, staged: StagedTensor) -> WriteItem | None:
    sizes, offsets = staged.local.size(), torch.Size(staged.offsets)
    if staged.local.numel() == 0 and 0 not in staged.shape:
        return None  # after an uneven split some ranks have no rows
    return WriteItem(
        index=MetadataIndex(name, offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=offsets, sizes=sizes),
            properties=TensorProperties(dtype=staged.local.dtype),
            size=torch.Size(staged.shape),
        ),
    )


def _difference(name: str, tensor: Tensor, saved: Any) -> str:
    if not isinstance(saved, TensorStorageMetadata):
        return f"{name} is missing in the checkpoint"
    if saved.properties.dtype != tensor.dtype:
        return f"{name} is {tensor.dtype} here and {saved.properties.dtype} in the checkpoint"
    if saved.size != tensor.size():
        return f"{name} has shape {tuple(tensor.size())} here and {tuple(saved.size)} in the checkpoint"
    return ""
