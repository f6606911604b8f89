"""Which group gets which stage and replica of a model: what its traffic costs, and the least it can cost. Pure.

A cell is a server, one replica of one pipeline stage; tensor-parallel peers are inside it. The cells of a stage form a
ring that averages gradients, and each cell sends to the same replica of the next stage.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import ne

from gangline.errors import ConfigError

Rows = Sequence[Sequence[int]]
"""Group of every cell: stages, then replicas."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeBytes:
    """Bytes of one rail in a step, by edge between two servers; those of the run's own plan."""

    data: float
    """Bytes on each edge of a stage's ring."""
    stage: float
    """Bytes between the same replica of neighbouring stages, both ways together."""
    expert: float = 0.0
    """Bytes from each server of an expert group to each other one."""
    expert_servers: int = 1
    """Neighbouring replicas of a stage that share their experts; divides the replicas."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellMapping:
    """Groups of all cells, and what crosses between groups."""

    groups: tuple[tuple[str, ...], ...]
    """Name of the group of each cell: stages, then replicas."""
    data_crossings: int
    """Edges of all rings between two groups."""
    stage_crossings: int
    """Edges from a stage to the next between two groups."""
    expert_crossings: int
    """Ordered pairs of an expert group in two groups."""
    bytes_between: float
    """Bytes of one rail and step on all edges between groups."""
    least_data_crossings: int
    """No mapping of these shares has fewer."""


def crossings(rows: Rows, expert_servers: int = 1) -> tuple[int, int, int]:
    """Edges between two groups: of rings, of stages, and ordered pairs of expert groups."""
    data = sum(sum(map(ne, row, [*row[1:], row[0]])) for row in rows)
    stage = sum(sum(map(ne, row, below)) for row, below in pairwise(rows))
    expert = (
        sum(_split_pairs(part) for row in rows for part in _parts(row, expert_servers)) if expert_servers > 1 else 0
    )
    return data, stage, expert


def _parts(row: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (row[start : start + size] for start in range(0, len(row), size))


def _split_pairs(part: Sequence[int]) -> int:
    return len(part) ** 2 - sum(part.count(group) ** 2 for group in set(part))


def bytes_between(rows: Rows, edges: EdgeBytes) -> float:
    """Bytes of one rail and step, between groups."""
    data, stage, expert = crossings(rows, edges.expert_servers if edges.expert else 1)
    return data * edges.data + stage * edges.stage + expert * edges.expert


def least_data_crossings(shares: Sequence[int], replicas: int) -> int:
    """Groups whose share is no whole number of stages: the rest of a stage of theirs is in another group."""
    return sum(1 for share in shares if share % replicas)


def described(rows: Rows, names: Sequence[str], edges: EdgeBytes) -> CellMapping:
    """A mapping by the names of groups, with its crossings and bounds."""
    data, stage, expert = crossings(rows, edges.expert_servers)
    shares = Counter(group for row in rows for group in row)
    least = least_data_crossings(list(shares.values()), len(rows[0]))
    return CellMapping(
        groups=tuple(tuple(names[group] for group in row) for row in rows),
        data_crossings=data, stage_crossings=stage, expert_crossings=expert,
        bytes_between=bytes_between(rows, edges), least_data_crossings=least,
    )  # fmt: skip


def checked_shares(shares: Mapping[str, int], *, replicas: int, stages: int, edges: EdgeBytes) -> list[int]:
    """Servers of each group, in order.

    Raises:
        ConfigError: They are not as many as there are cells, or an expert group does not divide the replicas.
    """
    if replicas < 1 or stages < 1 or min(shares.values(), default=0) < 1 or sum(shares.values()) != replicas * stages:
        raise ConfigError(
            f"a mapping of {replicas} replicas of {stages} stages wants {replicas * stages} servers, each group 1 or "
            f"more, found {sum(shares.values())} in {len(shares)} groups"
        )
    if replicas % edges.expert_servers:
        raise ConfigError(f"an expert group of {edges.expert_servers} servers must divide {replicas} replicas")
    return list(shares.values())


def server_order(mapping: CellMapping, servers: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Servers in node-rank order: stages, then replicas; those of a group by position.

    Args:
        servers: Of each group, at least as many as the mapping has cells in it.
    """
    left = {group: iter(names) for group, names in servers.items()}
    return tuple(next(left[group]) for row in mapping.groups for group in row)
