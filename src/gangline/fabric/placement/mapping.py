"""Which group gets which stage and replica of a model: what its traffic costs, and the least it can cost. Pure.

A cell is a server, one replica of one pipeline stage; tensor-parallel peers are inside it. The cells of a stage form a
ring that averages gradients, and each cell sends to the same replica of the next stage.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import ne
from typing import TypeVar

from gangline.errors import ConfigError

T = TypeVar("T")
Rows = Sequence[Sequence[int]]
"""Group of every cell: stages, then replicas."""
Names = Sequence[Sequence[str]]
"""The same by name."""


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


def crossings(rows: Rows | Names, expert_servers: int = 1) -> tuple[int, int, int]:
    """Edges between two groups: of rings, of stages, and ordered pairs of expert groups."""
    data = sum(sum(map(ne, row, [*row[1:], row[0]])) for row in rows)
    stage = sum(sum(map(ne, row, below)) for row, below in pairwise(rows))
    expert = 0
    if expert_servers > 1:
        parts = [row[start : start + expert_servers] for row in rows for start in range(0, len(row), expert_servers)]
        expert = sum(len(part) ** 2 - sum(count**2 for count in Counter(part).values()) for part in parts)
    return data, stage, expert


def bytes_between(rows: Rows | Names, edges: EdgeBytes) -> float:
    """Bytes of one rail and step, between groups."""
    data, stage, expert = crossings(rows, edges.expert_servers if edges.expert else 1)
    return data * edges.data + stage * edges.stage + expert * edges.expert


def least_data_crossings(shares: Sequence[int], replicas: int) -> int:
    """Groups whose share is no whole number of stages: the rest of a stage of theirs is in another group."""
    return sum(1 for share in shares if share % replicas)


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


def server_order(cells: Names, members: Mapping[str, Iterable[T]]) -> tuple[T, ...]:
    """Members of the groups of `cells` in node-rank order: stages, then replicas; those of a group by position.

    Args:
        members: Of each group, at least as many as there are cells in it.
    """
    left = {group: iter(member) for group, member in members.items()}
    return tuple(next(left[group]) for row in cells for group in row)
