"""Writer of torch's distributed checkpoint to an object store: safetensors, JSON and a signed manifest; no pickle."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from gangline.checkpoint.dcp import StagedSavePlanner
from gangline.checkpoint.format.blocks import write_file
from gangline.checkpoint.format.commit import advance, claim, seal
from gangline.checkpoint.format.folder import CheckpointState
from gangline.checkpoint.format.index import Chunk, Index, StoredTensor, chunk_key
from gangline.checkpoint.format.manifest import FileEntry, Manifest, checkpoint_folder
from gangline.checkpoint.format.safetensors import header_bytes
from gangline.checkpoint.host_tensors import NAMES, flat_bytes, in_blocks
from gangline.spec.codec import canonical
from gangline.storage.objects.protocol import ObjectStore

MAX_PART_BYTES = 2 * 2**30
SMALL_BYTES = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a run's checkpoints are written, and by which run and generation."""

    store: ObjectStore
    prefix: str
    """Holds `step-<8 digits>/` and `latest.json`."""
    run: str
    plan_digest: str
    generation: int
    key: bytes = field(repr=False)

    def claim(self) -> None:
        """Fence off older generations, or raise if this one is stale. By the coordinator, before it writes."""
        claim(self.store, self.prefix, self.generation)

    def complete(self, manifest: Manifest) -> None:
        """Make the files a checkpoint, and the newest one. By the coordinator, when all files are written."""
        folder = checkpoint_folder(self.prefix, manifest.step)
        seal(self.store, folder, manifest, self.key)
        advance(self.store, self.prefix, self.generation, manifest.step)


@dataclass(frozen=True, slots=True)
class _Written:
    file: str
    entry: FileEntry


class CheckpointWriter(StorageWriter):
    """One save of one rank; the coordinator adds index, state and, last, the manifest."""

    def __init__(
        self, to: Destination, planner: StagedSavePlanner, *, step: int, rank: int,
        optimizer: dict[str, Any], numbers: dict[str, Any], files: ObjectStore | None = None,
    ) -> None:  # fmt: skip
        self._to, self._planner, self._step, self._rank = to, planner, step, rank
        self._files = files or to.store
        self._optimizer, self._numbers = optimizer, numbers
        self.folder = checkpoint_folder(to.prefix, step)
        self.size_bytes = 0
        """Size of the whole checkpoint; known on the coordinator, after the save."""

    def reset(self, checkpoint_id: object = None) -> None:
        """Nothing to do: a writer serves one save."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - the interface's
        """Claim the folder for this generation; only the coordinator does."""
        if is_coordinator:
            self._to.claim()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The plans as they are."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's chunks to files of a limited size; done when it returns."""
        small = [item for item in plan.items if _size(item, planner) <= SMALL_BYTES]
        large = [item for item in plan.items if _size(item, planner) > SMALL_BYTES]
        results = []
        # a rank that needs small tensors of another one reads one short file
        for part, items in enumerate(chain(_groups(small, planner), _groups(large, planner))):
            results += self._write_part(part, items, planner)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write index and state, then the manifest, which makes the checkpoint valid; runs on the coordinator."""
        written = [result for of_rank in results for result in of_rank]
        files = {result.storage_data.file: result.storage_data.entry for result in written}
        manifest = Manifest(
            run=self._to.run, step=self._step, generation=self._to.generation, plan_sha256=self._to.plan_digest,
            files=files | self._write_json(_index(metadata, written)),
        )  # fmt: skip
        self.complete(manifest)
        self.size_bytes = manifest.size_bytes

    def complete(self, manifest: Manifest) -> None:
        """Make it a checkpoint; on the coordinator, when all files are written."""
        self._to.complete(manifest)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:  # noqa: ARG003 - the interface's
        """Folders are named by step, never by torch's id."""
        return False

    def _write_part(self, part: int, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        name = f"g{self._to.generation:04d}-r{self._rank:05d}-{part}.safetensors"
        entry = write_file(self._files, f"{self.folder}/{name}", _file_blocks(items, planner))
        return [
            WriteResult(index=item.index, size_in_bytes=_size(item, planner), storage_data=_Written(name, entry))
            for item in items
        ]

    def _write_json(self, index: Index) -> dict[str, FileEntry]:
        state = CheckpointState(
            step=self._step, optimizer=self._optimizer, numbers=self._numbers, ranks=self._planner.numbers_by_rank,
            versions={"torch": torch.__version__},
        )  # fmt: skip
        head = f"g{self._to.generation:04d}"
        return {
            name: write_file(self._files, f"{self.folder}/{name}", [canonical(value)])
            for name, value in ((f"{head}-index.json", index), (f"{head}-state.json", state))
        }


def _groups(items: list[WriteItem], planner: SavePlanner) -> Iterator[list[WriteItem]]:
    """Groups of at most 2 GiB, in order; a larger chunk is a group of its own."""
    group: list[WriteItem] = []
    room = MAX_PART_BYTES
    for item in items:
        size = _size(item, planner)
        if group and size > room:
            yield group
            group, room = [], MAX_PART_BYTES
        group.append(item)
        room -= size
    if group:
        yield group


def _file_blocks(items: list[WriteItem], planner: SavePlanner) -> Iterator[memoryview]:
    tensors = {chunk_key(item.index.fqn, item.index.offset or ()): _tensor(item, planner) for item in items}
    head = header_bytes({key: (NAMES[tensor.dtype], tensor.shape) for key, tensor in tensors.items()})
    return in_blocks(chain([torch.frombuffer(bytearray(head), dtype=torch.uint8)], map(flat_bytes, tensors.values())))


def _tensor(item: WriteItem, planner: SavePlanner) -> Tensor:
    data = planner.resolve_data(item)
    assert isinstance(data, Tensor)
    return data


def _size(item: WriteItem, planner: SavePlanner) -> int:
    return _tensor(item, planner).nbytes


def _index(metadata: Metadata, written: list[WriteResult]) -> Index:
    files = {(result.index.fqn, result.index.offset): result.storage_data.file for result in written}
    tensors = {}
    for name, saved in metadata.state_dict_metadata.items():
        assert isinstance(saved, TensorStorageMetadata)
        chunks = tuple(
            Chunk(file=files[name, chunk.offsets], offsets=tuple(chunk.offsets), sizes=tuple(chunk.sizes))
            for chunk in saved.chunks
        )
        tensors[name] = StoredTensor(dtype=NAMES[saved.properties.dtype], shape=tuple(saved.size), chunks=chunks)
    return Index(tensors=tensors)
