"""The ranks that save and load together, and the few small things they agree on.

Every method is collective: all ranks call it, in the same order. Words travel as JSON and numbers as tensors.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from gangline.checkpoint.format.manifest import RefusedCheckpoint
from gangline.errors import GanglineError, UsageError, error_for

T = TypeVar("T")


class Peers:
    """All ranks of a gloo group; without a group, this process alone."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        if group is None and dist.is_initialized() and dist.get_world_size() > 1:
            raise UsageError(
                "wanted a gloo group for checkpoints alone, found none in a gang of several ranks; "
                'make one by torch.distributed.new_group(backend="gloo")'
            )
        self.group = group
        self.rank = dist.get_rank(group) if group is not None else 0
        self.size = dist.get_world_size(group) if group is not None else 1

    @property
    def alone(self) -> bool:
        return self.group is None

    def twin(self) -> "Peers":
        """The same ranks over a second group, for another thread; every rank of the gang must call this."""
        if self.group is None:
            return self
        group = dist.new_group(dist.get_process_group_ranks(self.group), backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        return Peers(group)

    def most(self, *numbers: int) -> list[int]:
        """The largest of each number over all ranks."""
        values = torch.tensor(numbers, dtype=torch.int64)
        if self.group is not None:
            dist.all_reduce(values, dist.ReduceOp.MAX, group=self.group)
        return [int(value) for value in values]

    def share(self, value: Any, *, source: int = 0) -> Any:
        """The plain JSON data of rank `source`, on all ranks."""
        if self.group is None:
            return value
        data = bytearray(json.dumps(value).encode()) if self.rank == source else bytearray()
        size = self.most(len(data))[0]
        text = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(size, dtype=torch.uint8)
        dist.broadcast(text, dist.get_global_rank(self.group, source), group=self.group)
        return json.loads(text.numpy().tobytes())

    def gather(self, value: Any) -> list[Any]:
        """The plain JSON data of every rank, by rank."""
        if self.group is None:
            return [value]
        data = bytearray(json.dumps(value).encode())
        padded = torch.zeros(self.most(len(data))[0], dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(data, dtype=torch.uint8)
        texts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(texts, padded, group=self.group)
        return [json.loads(text.numpy().tobytes().rstrip(b"\0")) for text in texts]

    def union(self, values: dict[str, T]) -> dict[str, T]:
        """All entries of all ranks' dictionaries of plain JSON data; where several have one, the lowest rank's.

        What many ranks hold alike travels once.
        """
        if self.group is None:
            return values
        merged: dict[str, T] = {}
        for source in self._first_of_a_kind(json.dumps(values).encode()):
            merged = self.share(values, source=source) | merged
        return merged

    def _first_of_a_kind(self, data: bytes) -> list[int]:
        """Ranks whose data no lower rank has."""
        own = torch.frombuffer(bytearray(sha256(data).digest()), dtype=torch.uint8)
        digests = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(digests, own, group=self.group)
        first: dict[bytes, int] = {}
        for rank, digest in enumerate(digests):
            first.setdefault(digest.numpy().tobytes(), rank)
        return sorted(first.values())

    def together(self, action: Callable[[], T]) -> T:
        """Run the local `action` on every rank; the error of the lowest rank that failed is raised on all."""
        error: GanglineError | None = None
        try:
            value = action()
        except GanglineError as raised:
            error = raised
        culprit = self.size - self.most(self.size - self.rank if error else 0)[0]
        if culprit == self.size:
            return value
        told = self.share(_describe(error) if error else None, source=culprit)
        if error and culprit == self.rank:
            raise error
        raise _restore(told, culprit)


def _describe(error: GanglineError) -> dict[str, Any]:
    if isinstance(error, RefusedCheckpoint):
        return {"file": error.file, "reason": error.reason}
    return {"exit_code": error.exit_code, "text": str(error)}


def _restore(told: dict[str, Any], rank: int) -> GanglineError:
    if "file" in told:
        return RefusedCheckpoint(told["file"], f"{told['reason']} (rank {rank})")
    return error_for(told["exit_code"])(f"{told['text']} (rank {rank})")
