"""Network locations of the nodes of a gang, in node-rank order."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedNode:
    """A node of a gang on another server than the one it was given."""

    node_rank: int
    placed: str
    found: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupEdges:
    """Edges of a ring over a gang's nodes from one group of servers to another, or inside one."""

    source: str
    target: str
    edges: int
    bytes_per_second: float | None = None
    """Measured between servers of these groups; None: not measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTile:
    """Consecutive nodes that the plan wants in one group of servers, and that are in several."""

    first: int
    """Node rank."""
    last: int
    groups: tuple[str, ...]
    """Places of its nodes in their order, each `block/group`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOrder:
    """Locations of the nodes of a gang, compared with the servers that they were given; None: not known."""

    num_groups: int | None = None
    """Groups of servers that the gang touches."""
    crossings: int | None = None
    """Edges of a ring over its nodes that lead to another group; the least is one a group."""
    edges: tuple[GroupEdges, ...] = ()
    """The same by group; empty where groups are not known, or more than 64 pairs of them are neighbours."""
    num_moved: int = 0
    """Nodes on other servers than those they were given."""
    moved: tuple[MovedNode, ...] = ()
    """The first of them."""
    num_split: int | None = None
    """Tiles of the plan that are in several groups."""
    split: tuple[SplitTile, ...] = ()
    """The first of them."""
