"""The ranks that save and load together, and the collectives by which they agree.

All ranks call every method, in the same order. JSON data and numbers are sent, no pickles.
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
                "wanted a gloo group that only checkpoints use, found none in a gang of several ranks; "
                'create one with torch.distributed.new_group(backend="gloo")'
            )
        self.group = group
        self.rank = dist.get_rank(group) if group is not None else 0
        self.size = dist.get_world_size(group) if group is not None else 1

    @property
    def alone(self) -> bool:
        """One process without a group: nothing is exchanged."""
        return self.group is None

    def second_group(self) -> "Peers":
        """The same ranks with another group, for another thread; every rank of the gang must call."""
        if self.group is None:
            return self
        group = dist.new_group(dist.get_process_group_ranks(self.group), backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        return Peers(group)

    def maximum(self, *numbers: int) -> list[int]:
        """Maximum of each number over all ranks."""
        values = torch.tensor(numbers, dtype=torch.int64)
        if self.group is not None:
            dist.all_reduce(values, dist.ReduceOp.MAX, group=self.group)
        return [int(value) for value in values]

    def broadcast(self, value: Any, *, source: int = 0) -> Any:
        """The JSON data of rank `source`, on all ranks."""
        if self.group is None:
            return value
        data = bytearray(json.dumps(value).encode()) if self.rank == source else bytearray()
        size = self.maximum(len(data))[0]
        text = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(size, dtype=torch.uint8)
        dist.broadcast(text, dist.get_global_rank(self.group, source), group=self.group)
        return json.loads(text.numpy().tobytes())

    def gather(self, value: Any) -> list[Any]:
        """The JSON data of every rank, by rank."""
        if self.group is None:
            return [value]
        data = bytearray(json.dumps(value).encode())
        padded = torch.zeros(self.maximum(len(data))[0], dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(data, dtype=torch.uint8)
        texts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(texts, padded, group=self.group)
        return [json.loads(text.numpy().tobytes().rstrip(b"\0")) for text in texts]

    def union(self, values: dict[str, T]) -> dict[str, T]:
        """All entries of all ranks' dictionaries of JSON data; if several ranks have a key, the lowest rank's.

        Equal dictionaries are sent once.
        """
        if self.group is None:
            return values
        merged: dict[str, T] = {}
        for source in self._first_of_a_kind(json.dumps(values).encode()):
            merged = self.broadcast(values, source=source) | merged
        return merged

    def _first_of_a_kind(self, data: bytes) -> list[int]:
        """The lowest rank of each group of ranks with equal data."""
        own = torch.frombuffer(bytearray(sha256(data).digest()), dtype=torch.uint8)
        digests = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(digests, own, group=self.group)
        first: dict[bytes, int] = {}
        for rank, digest in enumerate(digests):
            first.setdefault(digest.numpy().tobytes(), rank)
        return sorted(first.values())

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run the local `action` on every rank; the error of the lowest rank that failed is raised on all."""
        error: GanglineError | None = None
        try:
            value = action()
        except GanglineError as raised:
            error = raised
        failed = self.size - self.maximum(self.size - self.rank if error else 0)[0]
        if failed == self.size:
            return value
        described = self.broadcast(_describe(error) if error else None, source=failed)
        if error and failed == self.rank:
            raise error
        raise _restore(described, failed)


def _describe(error: GanglineError) -> dict[str, Any]:
    if isinstance(error, RefusedCheckpoint):
        return {"file": error.file, "reason": error.reason}
    return {"exit_code": error.exit_code, "text": str(error)}


def _restore(described: dict[str, Any], rank: int) -> GanglineError:
    if "file" in described:
        return RefusedCheckpoint(described["file"], f"{described['reason']} (rank {rank})")
    return error_for(described["exit_code"])(f"{described['text']} (rank {rank})")
