"""What torch's distributed checkpoint writes and reads on each rank: tensors only, with nothing converted.

The planning itself (who writes a replica, which chunks overlap) is torch's; the refusals are ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
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
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

from gangline.checkpoint.format.manifest import RefusedCheckpoint


@dataclass(frozen=True, slots=True)
class StagedTensor:
    """This rank's chunk of one tensor, copied to the host."""

    local: Tensor
    shape: tuple[int, ...]
    """Of the whole tensor."""
    offsets: tuple[int, ...]
    """Of the chunk in it."""


class StagedSavePlanner(DefaultSavePlanner):
    """Plans a dictionary of `Staged`; carries each rank's own numbers to the coordinator."""

    def __init__(self, rank_numbers: dict[str, Any] | None) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._rank_numbers = rank_numbers
        self.numbers_by_rank: tuple[dict[str, Any], ...] = ()
        """On the coordinator, once planned; empty where no rank gave any."""

    def create_local_plan(self) -> SavePlan:
        items = [_write_item(name, staged) for name, staged in self.state_dict.items()]
        self.plan = SavePlan([item for item in items if item is not None], planner_data=self._rank_numbers)
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        numbers = [plan.planner_data for plan in all_plans]
        self.numbers_by_rank = tuple(each or {} for each in numbers) if any(numbers) else ()
        return super().create_global_plan(list(_numbers_once(all_plans)))

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        staged: StagedTensor = self.state_dict[write_item.index.fqn]
        return staged.local


class StrictLoadPlanner(DefaultLoadPlanner):
    """Fills the tensors of the state in place; refuses what would need a conversion or is not there."""

    def __init__(self, file: str) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._file = file

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        saved = self.metadata.state_dict_metadata
        for name, tensor in self.state_dict.items():
            _check(self._file, name, tensor, saved.get(name))
        return super().create_local_plan()

    def load_bytes(self, read_item: ReadItem, value: object) -> None:  # noqa: ARG002 - the interface's
        raise RefusedCheckpoint(self._file, f"{read_item.dest_index.fqn} is stored as bytes; checkpoints hold tensors")


def _numbers_once(plans: list[SavePlan]) -> Iterator[SavePlan]:
    """torch shares out what many ranks have alike; single numbers, such as counters of optimizers, the first keeps.

    Every rank will want them all: from one file, not from every rank's.
    """
    seen: set[MetadataIndex] = set()
    for plan in plans:
        items = [item for item in plan.items if item.index not in seen]
        seen.update(item.index for item in items if _num_elements(item) == 1)
        yield replace(plan, items=items, planner_data=None)


def _num_elements(item: WriteItem) -> int:
    assert item.tensor_data is not None
    return item.tensor_data.chunk.sizes.numel()


def _write_item(name: str, staged: StagedTensor) -> WriteItem | None:
    sizes, offsets = staged.local.size(), torch.Size(staged.offsets)
    if staged.local.numel() == 0 and 0 not in staged.shape:
        return None  # an uneven split leaves some ranks without rows
    return WriteItem(
        index=MetadataIndex(name, offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=offsets, sizes=sizes),
            properties=TensorProperties(dtype=staged.local.dtype),
            size=torch.Size(staged.shape),
        ),
    )


def _check(file: str, name: str, tensor: Tensor, saved: Any) -> None:
    if not isinstance(saved, TensorStorageMetadata):
        raise RefusedCheckpoint(file, f"{name} is wanted, but not in the checkpoint")
    if saved.properties.dtype != tensor.dtype:
        raise RefusedCheckpoint(file, f"{name} is {tensor.dtype} here and {saved.properties.dtype} in the checkpoint")
    if saved.size != tensor.size():
        raise RefusedCheckpoint(
            file, f"{name} has shape {tuple(tensor.size())} here and {tuple(saved.size)} in the checkpoint"
        )
