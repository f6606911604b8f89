"""Mappings by tiles: every group gets a piece of the cells that is as square as the traffic wants it. Pure.

Swaps of cells then lower the bytes between groups: annealing by a fixed number of tries, so it is repeatable.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from math import exp
from random import Random

from gangline.fabric.placement.mapping import (
    EdgeBytes,
    Rows,
    bytes_between,
    checked_shares,
    server_order,
)
from gangline.fabric.topology.inventory import Fabric
from gangline.fabric.traffic.order_paths import of_fewest_groups
from gangline.fabric.traffic.rings import ring_order

_ALL_HEIGHTS = 8
"""Stages up to which a tile may have any number of them; of more, divisors alone."""
_STARTS = 2
"""Tilings that swaps begin with."""


def map_cells(
    shares: Mapping[str, int], *, replicas: int, stages: int, edges: EdgeBytes, swaps: int = 12_000
) -> tuple[tuple[str, ...], ...]:
    """Names of the groups of all cells, stages, then replicas: the best tiling of every shape, after swaps of cells.

    Args:
        shares: Servers of each group, as many as there are cells.
        swaps: Tries; the same number gives the same mapping.

    Raises:
        ConfigError: As `checked_shares`.
    """
    sizes = checked_shares(shares, replicas=replicas, stages=stages, edges=edges)
    tilings: dict[float, Rows] = {}
    for rows in _tilings(sizes, replicas, stages):
        tilings.setdefault(bytes_between(rows, edges), rows)
    ranked = [tilings[cost] for cost in sorted(tilings)[:_STARTS]]
    better = [improved(rows, edges, tries=swaps // len(ranked)) for rows in ranked]
    best = min(better, key=lambda rows: bytes_between(rows, edges))
    names = list(shares)
    return tuple(tuple(names[group] for group in row) for row in best)


def node_order(
    fabric: Fabric, servers: Iterable[str], *, replicas: int, stages: int = 1, edges: EdgeBytes
) -> tuple[str, ...]:
    """`servers` in node-rank order: stages, then replicas; of one stage the ring that crosses least between groups.

    Raises:
        ConfigError: A server is not in the fabric, or there are not as many as replicas of all stages.
    """
    order = ring_order(fabric, servers)
    by_group: dict[str, list[str]] = {}
    names = fabric.by_server
    for server in order:
        by_group.setdefault(names[server].name, []).append(server)
    shares = {group: len(found) for group, found in by_group.items()}
    if stages == 1:
        checked_shares(shares, replicas=replicas, stages=stages, edges=edges)
        return order
    return server_order(map_cells(shares, replicas=replicas, stages=stages, edges=edges), by_group)


@lru_cache(maxsize=64)
def planned_order(fabric: Fabric, servers: int, *, stages: int = 1, edges: EdgeBytes | None = None) -> tuple[str, ...]:
    """So many servers on the fewest groups that hold them, in the node-rank order of a plan.

    Args:
        fabric: Has as many.
        servers: Of the gang.
        stages: Of the pipeline, which divide them; else a ring goes over all.
        edges: What the plan sends; None: not known, and stages follow each other.
    """
    chosen = of_fewest_groups(fabric, servers)
    if stages == 1 or edges is None or servers % stages:
        return chosen
    return node_order(fabric, chosen, replicas=servers // stages, stages=stages, edges=edges)


def _tilings(sizes: Sequence[int], replicas: int, stages: int) -> Iterator[Rows]:
    heights = range(1, stages + 1) if stages <= _ALL_HEIGHTS else _divisors(stages)
    for height in heights:
        owners = _owners(sizes, replicas * height)
        for width in _divisors(replicas):
            if width * height <= max(sizes) or width == 1:
                yield _tiling(owners, replicas, stages, height=height, width=width)


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _owners(sizes: Sequence[int], cells: int) -> list[int]:
    """Group of each cell in the order of filling, where bands have `cells` cells."""
    return [group for group in _closing_order(sizes, cells) for _ in range(sizes[group])]


def _tiling(owners: list[int], replicas: int, stages: int, *, height: int, width: int) -> list[list[int]]:
    """Bands of `height` stages, filled back and forth with tiles of `width` replicas, row by row inside a tile."""
    rows: list[list[int]] = []
    for first in range(0, stages, height):
        band = min(height, stages - first)
        start, tile = first * replicas, band * width
        cells = [
            [
                owner
                for at in range(start + row * width, start + band * replicas, tile)
                for owner in owners[at : at + width]
            ]
            for row in range(band)
        ]
        rows += [row[::-1] for row in cells] if first // height % 2 else cells
    return rows


def _closing_order(sizes: Sequence[int], cells: int) -> list[int]:
    """Groups such that, filled in this order, as many of them as possible end where a band of `cells` cells ends.

    The fewest bands that some of the groups fill exactly come first, again and again; large groups among equals.
    """
    left = sorted(range(len(sizes)), key=lambda group: (-sizes[group], group))
    if len(set(sizes)) == 1:
        return left
    order: list[int] = []
    while left:
        closed = _closing(left, sizes, cells)
        order += closed
        done = set(closed)
        left = [group for group in left if group not in done]
    return order


def _closing(left: list[int], sizes: Sequence[int], cells: int) -> list[int]:
    """Some of `left` that together fill the fewest whole bands; all of them where none do."""
    reach = [1]
    for group in left:
        reach.append(reach[-1] | reach[-1] << sizes[group])
    total = sum(sizes[group] for group in left)
    sums = (each for each in range(cells, total, cells) if reach[-1] >> each & 1)
    if (target := next(sums, 0)) == 0:
        return left
    chosen = []
    for at in range(len(left), 0, -1):
        if not reach[at - 1] >> target & 1:
            chosen.append(left[at - 1])
            target -= sizes[left[at - 1]]
    return chosen[::-1]


Neighbours = list[tuple[int, float]]
"""Neighbours of a cell, with the bytes that cross if they are in another group."""
_HOTTEST = 0.3
"""Bytes that a swap may add at first, in those of the heaviest edge."""


def improved(rows: Rows, edges: EdgeBytes, *, tries: int) -> Rows:
    """The best rows that `tries` swaps pass through; never worse than `rows`.

    Each moves a cell to the group of one of its neighbours, and a cell of that group to its place.
    """
    cells = _Cells([group for row in rows for group in row])
    beside = cache(partial(_neighbours, len(rows[0]), len(rows), edges))
    random, count = Random(len(cells.owners)), len(cells.owners)  # noqa: S311  # a search, no secret
    heaviest = max(edges.data, edges.stage, edges.expert)
    cost = least = 0.0
    best = cells.owners[:]
    for attempt in range(tries):
        first = int(random.random() * count)
        if not (near := beside(first)):
            continue
        group = cells.owners[near[int(random.random() * len(near))][0]]
        if group == cells.owners[first]:
            continue
        second = cells.members[group][int(random.random() * len(cells.members[group]))]
        change = _change(cells.owners, first, near, second, beside(second))
        heat = _HOTTEST * heaviest * (1 - attempt / tries) ** 2
        if change <= 0 or (heat and random.random() < exp(-change / heat)):
            cells.swap(first, second)
            cost += change
            if cost < least - 1e-9 * heaviest:
                least, best = cost, cells.owners[:]
    width = len(rows[0])
    return [best[start : start + width] for start in range(0, count, width)]


class _Cells:
    """Group of each cell, and the cells of each group."""

    def __init__(self, owners: list[int]) -> None:
        self.owners = owners
        self.members: dict[int, list[int]] = {}
        self._places: list[int] = []
        for cell, group in enumerate(owners):
            others = self.members.setdefault(group, [])
            self._places.append(len(others))
            others.append(cell)

    def swap(self, first: int, second: int) -> None:
        """Exchange the groups of two cells."""
        owners, places = self.owners, self._places
        self.members[owners[first]][places[first]] = second
        self.members[owners[second]][places[second]] = first
        owners[first], owners[second] = owners[second], owners[first]
        places[first], places[second] = places[second], places[first]


def _change(owners: list[int], first: int, near: Neighbours, second: int, far: Neighbours) -> float:
    """Bytes that a swap adds."""
    before, after = owners[first], owners[second]
    change = 0.0
    for other, size in near:
        if other != second:
            group = owners[other]
            change += size * ((group != after) - (group != before))
    for other, size in far:
        if other != first:
            group = owners[other]
            change += size * ((group != before) - (group != after))
    return change


def _neighbours(replicas: int, stages: int, edges: EdgeBytes, cell: int) -> Neighbours:
    replica = cell % replicas
    row = cell - replica
    near = [(row + (replica + step) % replicas, edges.data) for step in (-1, 1) if replicas > 1]
    near += [(cell + step, edges.stage) for step in (-replicas, replicas) if 0 <= cell + step < stages * replicas]
    if edges.expert:
        first = row + replica - replica % edges.expert_servers
        near += [(peer, 2 * edges.expert) for peer in range(first, first + edges.expert_servers) if peer != cell]
    return near
