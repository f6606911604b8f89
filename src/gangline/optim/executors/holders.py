"""Which ranks hold which part of a parameter: hosts it is cut over, and ranks with copies of the same part.

A rank's part and a matrix of the parameter overlap in a piece.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from gangline.errors import ConfigError
from gangline.optim.executors.torch_names import compute_local_shape_and_global_offset
from gangline.optim.plan.matrix import LogicalMatrix, RowRanges

Ranks = tuple[int, ...]

Rows = slice | Tensor
"""One range, or a number for each row."""


@dataclass(frozen=True, slots=True)
class Holders:
    """Global ranks around this one, rising."""

    hosts: Ranks
    """Ranks that the parameter is cut over; this rank alone: it holds the whole."""
    copies: Ranks
    """Ranks that hold the same part as this one."""

    @property
    def host(self) -> int:
        """Place of this rank among hosts."""
        return self.hosts.index(_rank())

    @property
    def owner(self) -> int:
        """Place of this rank among copies."""
        return self.copies.index(_rank())


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def ranks_of(replicas: ProcessGroup | DeviceMesh | None) -> Ranks:
    """Global ranks of a group or a mesh of one dimension; this rank alone for None.

    Raises:
        ConfigError: The mesh has more dimensions.
    """
    if replicas is None:
        return (_rank(),)
    if isinstance(replicas, DeviceMesh):
        if replicas.ndim != 1:
            raise ConfigError(f"replicas are a mesh of one dimension, found {replicas}; use mesh['its dimension']")
        replicas = replicas.get_group()
    return tuple(sorted(dist.get_process_group_ranks(replicas)))


def holders_of(parameter: Tensor, replicas: Ranks) -> Holders:
    """Who holds `parameter`, by its placements.

    Args:
        parameter: Plain, or a DTensor of any mesh.
        replicas: Ranks with copies of plain parameters, and of a DTensor whose mesh has no dimension that replicates,
            unless it is cut over them.

    Raises:
        ConfigError: A placement is neither a shard nor a copy.
    """
    if not isinstance(parameter, DTensor):
        return Holders((_rank(),), replicas)
    mesh, coordinate = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    if coordinate is None or any(placement.is_partial() for placement in parameter.placements):
        raise ConfigError(
            f"a parameter of placements {parameter.placements} has no holders here; use Shard or Replicate"
        )
    is_copied = [placement.is_replicate() for placement in parameter.placements]
    hosts = _ranks_along(mesh, coordinate, [not each for each in is_copied])
    copies = _ranks_along(mesh, coordinate, is_copied)
    if len(copies) == 1 and set(replicas) & set(hosts) == {_rank()}:
        copies = replicas
    return Holders(hosts, copies)


def _ranks_along(mesh: DeviceMesh, coordinate: Sequence[int], is_free: Sequence[bool]) -> Ranks:
    """Ranks of `mesh` that differ from this one in the free dimensions alone."""
    place = tuple(slice(None) if free else at for at, free in zip(coordinate, is_free, strict=True))
    return tuple(sorted(int(each) for each in mesh.mesh[place].flatten()))


@dataclass(frozen=True, slots=True)
class Part:
    """Rows and columns of a matrix that one rank holds; the matrix of a stack has the rows of all its layers."""

    rows: RowRanges
    columns: tuple[int, int]

    @staticmethod
    def of(plain: dict[str, Any]) -> "Part":
        """Part from JSON data of its fields."""
        (start, stop), rows = plain["columns"], plain["rows"]
        return Part(tuple((first, last) for first, last in rows), (start, stop))

    @property
    def elements(self) -> int:
        """Elements that the rank holds."""
        return sum(stop - start for start, stop in self.rows) * (self.columns[1] - self.columns[0])


def own_part(parameter: Tensor) -> Part:
    """What this rank holds of `parameter`, which has two dimensions, or three if it is a stack."""
    shape = tuple(parameter.shape)
    size, offset = shape, (0,) * len(shape)
    if isinstance(parameter, DTensor):
        size, offset = compute_local_shape_and_global_offset(shape, parameter.device_mesh, parameter.placements)
    return part_of(shape, size, offset)


def part_of(shape: tuple[int, ...], size: Sequence[int], offset: Sequence[int]) -> Part:
    """A box of a parameter of `shape`."""
    *layers, rows, columns = zip(
        offset, (start + count for start, count in zip(offset, size, strict=True)), strict=True
    )
    height = shape[-2]
    found = [(at * height + rows[0], at * height + rows[1]) for at in (range(*layers[0]) if layers else (0,))]
    return Part(_joined(found) if 0 not in size else (), columns)


def _joined(ranges: Sequence[tuple[int, int]]) -> RowRanges:
    """Adjacent ranges as one."""
    starts = [ranges[0][0], *(right[0] for left, right in pairwise(ranges) if left[1] != right[0])]
    stops = [*(left[1] for left, right in pairwise(ranges) if left[1] != right[0]), ranges[-1][1]]
    return tuple(zip(starts, stops, strict=True))


class ProcessGroups:
    """Process groups of sets of ranks, created once; their members call in the same order."""

    def __init__(self) -> None:
        self._known: dict[Ranks, ProcessGroup | None] = {}

    def of(self, ranks: Ranks) -> ProcessGroup | None:
        """Group of `ranks`, this one among them; None: it is alone."""
        if ranks not in self._known:
            self._known[ranks] = self._create(ranks)
        return self._known[ranks]

    @staticmethod
    def _create(ranks: Ranks) -> ProcessGroup | None:
        if len(ranks) == 1:
            return None
        if ranks == tuple(range(dist.get_world_size())):
            return dist.group.WORLD
        group = dist.new_group(list(ranks), use_local_synchronization=True)
        assert isinstance(group, ProcessGroup), "this rank is one of them"
        return group


@dataclass(frozen=True, slots=True)
class MatrixPiece:
    """Elements of one matrix that one rank holds."""

    stored: Rows
    """Place among the rows of the rank's part."""
    rows: Rows
    """Place among the rows of the matrix."""
    columns: slice
    """Columns of the matrix."""
    shape: tuple[int, int]

    @property
    def elements(self) -> int:
        """Elements of the matrix that the rank holds."""
        return prod(self.shape)


def overlap(part: Part, matrix: LogicalMatrix, device: torch.device) -> MatrixPiece:
    """Rows of `matrix` that `part` has, in the order in which both have them."""
    wanted = matrix.rows or ((0, matrix.shape[0]),)
    runs = list(_runs(part.rows, wanted))
    count, columns = sum(length for _, _, length in runs), part.columns
    return MatrixPiece(
        stored=_rows([(start, length) for start, _, length in runs], device),
        rows=_rows([(start, length) for _, start, length in runs], device),
        columns=slice(*columns),
        shape=(count, columns[1] - columns[0]) if count else (0, 0),
    )


def _runs(held: RowRanges, wanted: RowRanges) -> Iterator[tuple[int, int, int]]:
    """Row of the part, row of the matrix, and how many follow; both ranges rise."""
    left = right = stored = found = 0
    while left < len(held) and right < len(wanted):
        start, stop = max(held[left][0], wanted[right][0]), min(held[left][1], wanted[right][1])
        if start < stop:
            yield stored + start - held[left][0], found + start - wanted[right][0], stop - start
        if held[left][1] <= wanted[right][1]:
            stored += held[left][1] - held[left][0]
            left += 1
        else:
            found += wanted[right][1] - wanted[right][0]
            right += 1


def _rows(runs: list[tuple[int, int]], device: torch.device) -> Rows:
    if not runs:
        return slice(0, 0)
    start, length = runs[0]
    for following, more in runs[1:]:
        if following != start + length:
            return torch.cat([torch.arange(at, at + count, device=device) for at, count in runs])
        length += more
    return slice(start, start + length)
