"""Order of samples: a function of seed and cursor only, so that it is the same at any world size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, Protocol

import torch

from gangline.errors import ConfigError
from gangline.train.runtime.initialization import derived_seed

SampleSpan = tuple[int, int]
"""Positions from start up to but not including stop."""
Shares = tuple[int, ...]
"""Samples of a step by replica, in order; empty if even."""


class PositionOrder(Protocol):
    """An order of samples."""

    def samples(self, positions: Sequence[int]) -> list[int]:
        """Indices of the samples at `positions`, which belong to one step."""
        ...


@dataclass(slots=True)
class SampleOrder:
    """Maps positions to samples: each epoch is a permutation drawn from the seed, or given by `order_of`."""

    num_samples: int
    seed: int
    order_of: Callable[[int], Sequence[int]] | None = None
    """Maps an epoch, from 0, to the indices of its samples: as many as there are samples; they may repeat."""
    _epoch: int = -1
    _order: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise ConfigError("the train split has no samples; build_data must give at least one")

    @staticmethod
    def of(data: Any, *, seed: int) -> "SampleOrder":
        """Order of `data`: its own `epoch_order(epoch)` if it has one."""
        return SampleOrder(num_samples=len(data), seed=seed, order_of=getattr(data, "epoch_order", None))

    def samples(self, positions: Sequence[int]) -> list[int]:
        """Indices of the samples at `positions`."""
        return [self.sample(position) for position in positions]

    def sample(self, position: int) -> int:
        """Index of the sample at `position`; holds 8 bytes a sample of one epoch.

        Raises:
            ConfigError: The order of the data has an index out of range, or another number of samples.
        """
        epoch, offset = divmod(position, self.num_samples)
        if epoch != self._epoch:
            self._order = self._order_in(epoch)
            self._epoch = epoch
        return int(self._order[offset])

    def _order_in(self, epoch: int) -> torch.Tensor:
        if self.order_of is None:
            generator = torch.Generator().manual_seed(derived_seed(self.seed, "order", epoch))
            return torch.randperm(self.num_samples, generator=generator)
        order = torch.tensor(_numbers(self.order_of(epoch), epoch), dtype=torch.int64)
        if len(order) != self.num_samples or not bool(((order >= 0) & (order < self.num_samples)).all()):
            found = f"{len(order)} numbers" + (f" from {order.min()} to {order.max()}" if len(order) else "")
            raise ConfigError(
                f"epoch_order({epoch}) of the data: wanted {self.num_samples} numbers of samples, "
                f"0 to {self.num_samples - 1}, found {found}"
            )
        return order


def _numbers(order: Any, epoch: int) -> list[int]:
    try:
        return [index(each) for each in order]
    except TypeError as error:
        raise ConfigError(f"epoch_order({epoch}) of the data: wanted numbers of samples, {error}") from error


def next_positions(cursor: int, count: int, skipped: Sequence[SampleSpan] = ()) -> tuple[list[int], int]:
    """The next `count` positions from `cursor` that are not skipped, and the cursor after them."""
    if not skipped:
        return list(range(cursor, cursor + count)), cursor + count
    positions: list[int] = []
    while len(positions) < count:
        hole = next((stop for start, stop in skipped if start <= cursor < stop), None)
        if hole is not None:
            cursor = hole
        else:
            positions.append(cursor)
            cursor += 1
    return positions, cursor


def share(count: int, parts: int, part: int) -> tuple[int, int]:
    """Start and stop of `part` when `count` items are split in order into `parts`; sizes differ by at most one."""
    return count * part // parts, count * (part + 1) // parts


def rank_spans(global_batch: int, *, ranks: int, shares: Shares = ()) -> list[tuple[int, int]]:
    """Span of each data-parallel rank in a step: even, or even within each replica's share."""
    if not shares:
        return [share(global_batch, ranks, each) for each in range(ranks)]
    shards, spans, first = ranks // len(shares), [], 0
    for size in shares:
        spans += [
            (first + start, first + stop) for start, stop in (share(size, shards, each) for each in range(shards))
        ]
        first += size
    return spans


def micro_batches(
    global_batch: int, *, ranks: int, rank: int, micro_batch: int, shares: Shares = ()
) -> list[tuple[int, int]]:
    """Spans of one rank's micro-batches within a step; equally many on all ranks of a replica, for their collectives.

    Without `shares` all ranks have the same number. Replicas synchronize in the last micro-batch only, so they may
    differ.

    Raises:
        ConfigError: There are fewer samples than ranks.
    """
    if global_batch < ranks:
        raise ConfigError(f"train.global_batch = {global_batch} is less than {ranks} ranks; give each at least one")
    every = rank_spans(global_batch, ranks=ranks, shares=shares)
    shards = ranks // len(shares) if shares else ranks
    peers = every[rank // shards * shards :][:shards]
    sizes = [stop - start for start, stop in peers]
    count = min(-(-max(sizes) // micro_batch), *sizes)
    first, last = every[rank]
    spans = [share(last - first, count, number) for number in range(count)]
    return [(first + start, first + stop) for start, stop in spans]
