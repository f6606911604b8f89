"""Servers for several gangs at once, each in one group where one has room. Pure.

Best fit: a gang goes to the fullest group that has room. Largest first where sizes divide each other: then no other way
keeps more gangs whole in equal groups (Coffman, Garey, Johnson 1987). Otherwise gangs keep their order, and the result
says how far it may be from the best.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gangline.fabric.placement import FreeGroup, fewest, select_servers
from gangline.spec.gang.podset import PlacedServer


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePlacement:
    """Servers of several gangs."""

    servers: Mapping[str, tuple[PlacedServer, ...]]
    """In node-rank order, by gang; gangs without room are missing."""
    num_groups: int
    """Groups of which any server is taken."""
    least_groups: int
    """No way to place the same gangs takes servers of fewer groups."""

    @property
    def gap(self) -> int:
        """Groups above that bound; 0: proven best."""
        return self.num_groups - self.least_groups


def place_queue(groups: Iterable[FreeGroup], gangs: Mapping[str, int]) -> QueuePlacement:
    """Place gangs, given by their numbers of pods, one after the other.

    Args:
        groups: With free places.
        gangs: Pods by gang, in the order of the queue; kept unless all sizes divide each other.
    """
    left = list(groups)
    free = [group.places for group in left]
    servers: dict[str, tuple[PlacedServer, ...]] = {}
    for name in _order(gangs):
        found = select_servers(left, gangs[name])
        if found:
            servers[name] = found
            left = [_without(group, found) for group in left]
    used = sum(group.places < size for group, size in zip(left, free, strict=True))
    return QueuePlacement(
        servers={name: servers[name] for name in gangs if name in servers},
        num_groups=used,
        least_groups=len(fewest(free, sum(map(len, servers.values())))),
    )


def _order(gangs: Mapping[str, int]) -> Sequence[str]:
    falling = sorted(gangs, key=lambda name: -gangs[name])
    divide = all(gangs[larger] % gangs[smaller] == 0 for larger, smaller in pairwise(falling))
    return falling if divide else list(gangs)


def _without(group: FreeGroup, taken: Iterable[PlacedServer]) -> FreeGroup:
    """The group without the places of `taken`."""
    here = Counter(server.name for server in taken if (server.block, server.group) == (group.block, group.name))
    if not here:
        return group
    return replace(group, servers={name: places - here[name] for name, places in group.servers.items()})
