"""Swaps of cells that lower the bytes between groups: annealing by a fixed number of tries. Pure, and repeatable."""

from math import exp
from random import Random

from gangline.fabric.mapping import EdgeBytes, Rows

Neighbours = list[list[tuple[int, float]]]
"""Of each cell: other cells, with the bytes that cross if they are in another group."""


def improved(rows: Rows, edges: EdgeBytes, *, tries: int) -> Rows:
    """The best rows that `tries` swaps of two cells of different groups pass through; never worse than `rows`."""
    owners = [group for row in rows for group in row]
    if len(set(owners)) < 2:
        return rows
    neighbours = _neighbours(len(rows[0]), len(rows), edges)
    random = Random(len(owners))  # noqa: S311  # a search, no secret
    hottest = max(edges.data, edges.stage, edges.expert)
    cost = least = 0.0
    best = owners[:]
    for attempt in range(tries):
        first, second = int(random.random() * len(owners)), int(random.random() * len(owners))
        if owners[first] == owners[second]:
            continue
        change = _change(owners, neighbours, first, second)
        heat = hottest * (1 - attempt / tries) ** 2
        if change <= 0 or random.random() * heat < heat * exp(-change / heat):
            owners[first], owners[second] = owners[second], owners[first]
            cost += change
            if cost < least - 1e-9 * hottest:
                least, best = cost, owners[:]
    width = len(rows[0])
    return tuple(tuple(best[start : start + width]) for start in range(0, len(best), width))


def _change(owners: list[int], neighbours: Neighbours, first: int, second: int) -> float:
    """Bytes that a swap adds."""
    before, after = owners[first], owners[second]
    change = 0.0
    for other, size in neighbours[first]:
        if other != second:
            group = owners[other]
            change += size * ((group != after) - (group != before))
    for other, size in neighbours[second]:
        if other != first:
            group = owners[other]
            change += size * ((group != before) - (group != after))
    return change


def _neighbours(replicas: int, stages: int, edges: EdgeBytes) -> Neighbours:
    found: Neighbours = []
    for stage in range(stages):
        for replica in range(replicas):
            row = stage * replicas
            near = [(row + (replica + step) % replicas, edges.data) for step in (-1, 1) if replicas > 1]
            near += [((row + step) + replica, edges.stage) for step in (-replicas, replicas)
                     if 0 <= row + step < stages * replicas]  # fmt: skip
            part = replica - replica % edges.expert_servers
            near += [(row + each, 2 * edges.expert) for each in range(part, part + edges.expert_servers)
                     if each != replica and edges.expert]  # fmt: skip
            found.append(near)
    return found
