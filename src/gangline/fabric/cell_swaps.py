"""Swaps of cells that lower the bytes between groups: annealing by a fixed number of tries. Pure, and repeatable."""

from functools import cache, partial
from math import exp
from random import Random

from gangline.fabric.mapping import EdgeBytes, Rows

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
