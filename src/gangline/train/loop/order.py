"""Which samples a step takes: a function of seed, cursor and nothing else, so no world size changes it.

Positions count samples from the start of training, epoch after epoch. The step at `cursor` takes the next
`global_batch` positions; its ranks share them in order. Pure, but for the permutation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from gangline.errors import ConfigError
from gangline.train.initialize import derived_seed

Span = tuple[int, int]
"""Positions from, up to but not including."""
Shares = tuple[int, ...]
"""Samples of a step by replica, in order; empty: as even as can be."""


@dataclass(slots=True)
class SampleOrder:
    """Positions to samples: each epoch is a permutation of its own."""

    num_samples: int
    seed: int
    _epoch: int = -1
    _order: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise ConfigError("the train split has no samples; build_data must give at least one")

    def sample(self, position: int) -> int:
        """Index of the sample at `position`; holds 8 bytes a sample of one epoch."""
        epoch, offset = divmod(position, self.num_samples)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(derived_seed(self.seed, "order", epoch))
            self._order = torch.randperm(self.num_samples, generator=generator)
            self._epoch = epoch
        return int(self._order[offset])


def next_positions(cursor: int, count: int, skipped: Sequence[Span] = ()) -> tuple[list[int], int]:
    """The next `count` positions from `cursor` that are in none of `skipped`, and the cursor after them."""
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
    """Start and stop of `part` when `count` things are dealt in order to `parts`; sizes differ by one at most."""
    return count * part // parts, count * (part + 1) // parts


def even_shares(global_batch: int, replicas: int) -> Shares:
    spans = (share(global_batch, replicas, each) for each in range(replicas))
    return tuple(stop - start for start, stop in spans)


def rank_spans(global_batch: int, *, ranks: int, shares: Shares = ()) -> list[tuple[int, int]]:
    """What each data-parallel rank takes of a step, by rank: evenly, or the shards of a replica its share evenly."""
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
    """Spans of one rank's micro-batches within a step; every rank of a replica gets as many, so that collectives meet.

    Without `shares` all ranks get as many. Replicas meet in the last micro-batch only, so they may differ.

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
